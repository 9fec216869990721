"""A Ray cluster of two local workers writes the same parts as one process."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from tophit.data.folders import open_images
from tophit.data.manifest import ImageRow
from tophit.embedding.folder import embed_to_folder
from tophit.embedding.on_ray import embed_on_ray
from tophit.models import build_embedder, load


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_two_workers_write_the_same_parts_and_a_second_start_only_the_missing_ones(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    build_embedder("small", "random", dim=8, size=32).save(tmp_path / "model")
    (tmp_path / "bad.png").write_text("no image")
    rows = [*open_images(str(pictures)).rows, ImageRow(tmp_path / "bad.png", "bad")]
    settings = {"batch": 4, "rows_a_part": 10, "runtime": "torch"}
    alone = embed_to_folder(load(tmp_path / "model"), rows, tmp_path / "one", **settings)
    model, out = str(tmp_path / "model"), tmp_path / "shared"
    shared = embed_on_ray(model, rows, out, processes=2, **settings)
    assert shared == alone
    assert list(shared.bad) == [len(rows) - 1]
    names = sorted(path.name for path in (tmp_path / "one").glob("*.parquet"))
    assert names == sorted(path.name for path in out.glob("*.parquet"))
    for name in names:
        assert pq.read_table(out / name).equals(pq.read_table(tmp_path / "one" / name), check_metadata=True)
    times = {name: (out / name).stat().st_mtime_ns for name in names}
    (out / names[2]).unlink()
    assert embed_on_ray(model, rows, out, processes=2, **settings) == alone
    assert [name for name in names if (out / name).stat().st_mtime_ns != times[name]] == [names[2]]
