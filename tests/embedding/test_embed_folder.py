import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tophit.data.folders import manifest_from_folder, open_images
from tophit.data.manifest import ImageRow
from tophit.embedding import folder as module
from tophit.embedding.folder import embed_to_folder
from tophit.embedding.rows import embed_rows
from tophit.embedding.vector_parts import read_description, read_parts
from tophit.errors import TophitError, UsageError
from tophit.images.preprocessing import Preprocessing
from tophit.models import Embedder, build_embedder
from tophit.models.embedder import Trained
from tophit.models.feature_cache import FeatureStore
from tophit.models.runtimes import TorchRuntime
from tophit.search.catalogue import build_catalogue, load_catalogue


@pytest.fixture(autouse=True)
def no_kept_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep features that other tests computed out of these tests."""
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def embedder() -> Embedder:
    torch.manual_seed(0)
    return build_embedder("small", "random", dim=8, size=32).eval()


@pytest.fixture
def rows(pictures: Path) -> list[ImageRow]:
    found = list(open_images(str(pictures)).rows)
    found[3] = replace(found[3], box=(2, 2, 30, 30), metadata={"price": 3, "name": "Größe"})
    return found


def all_of(folder: Path) -> dict[str, np.ndarray]:
    return {key: vector for part in read_parts(folder) for key, vector in zip(part.ids, part.vectors, strict=True)}


def test_the_folder_has_the_format_that_readers_expect(
    embedder: Embedder, rows: list[ImageRow], tmp_path: Path
) -> None:
    found = embed_to_folder(embedder, rows, tmp_path / "v", model="mine", rows_a_part=20)
    assert (found.count, found.bad, found.complete, found.runtime) == (48, {}, True, "torch")
    names = sorted(path.name for path in (tmp_path / "v").iterdir())
    assert names == ["embedding.json", *(f"part-0000-0000{i}.parquet" for i in range(3))]
    fields = json.loads((tmp_path / "v" / "embedding.json").read_text())
    assert fields["format"] == 1
    assert fields["fingerprint"] == embedder.fingerprint()
    assert (fields["dim"], fields["count_of_rows"], fields["model"]) == (8, 48, "mine")
    assert Preprocessing.from_json(fields["preprocessing"]) == embedder.preprocessing
    table = pq.read_table(tmp_path / "v" / "part-0000-00000.parquet")
    assert table.column_names == ["id", "path", "label", "split", "metadata", "vector"]
    assert table.schema.field("vector").type == pa.list_(pa.float32(), 8)
    assert {str(table.schema.field(name).type) for name in table.column_names[:5]} == {"string"}
    parts = list(read_parts(tmp_path / "v"))
    assert [len(part.ids) for part in parts] == [20, 20, 8]
    assert parts[0].metadata[3] == {"price": 3, "name": "Größe", "box": [2, 2, 30, 30]}
    assert parts[0].labels == [row.label for row in rows[:20]]
    assert parts[0].paths[3] == str(rows[3].path.absolute())


def test_the_ids_and_vectors_are_those_of_an_index(embedder: Embedder, rows: list[ImageRow], tmp_path: Path) -> None:
    embed_to_folder(embedder, rows, tmp_path / "v")
    catalogue, _ = build_catalogue(embedder, rows, tmp_path / "index")
    found = all_of(tmp_path / "v")
    indexed = {item.id: item.vector for item in catalogue.index.items()}
    assert found.keys() == indexed.keys()
    for key, vector in found.items():
        np.testing.assert_allclose(vector, indexed[key], atol=1e-6)


def test_an_index_is_loaded_from_them(embedder: Embedder, rows: list[ImageRow], tmp_path: Path) -> None:
    embed_to_folder(embedder, rows, tmp_path / "v", rows_a_part=10)
    loaded, written = load_catalogue(embedder, tmp_path / "v", tmp_path / "index")
    with loaded:
        assert (written, len(loaded.index)) == (len(rows), len(rows))
        assert loaded.search([rows[3].path], k=1)[0][0].metadata["price"] == 3


def test_a_second_start_computes_only_the_missing_parts(
    embedder: Embedder, rows: list[ImageRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed_to_folder(embedder, rows, tmp_path / "v", rows_a_part=10)
    before = all_of(tmp_path / "v")
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path / "empty"))  # so that nothing is kept but the parts
    (tmp_path / "v" / "part-0000-00002.parquet").unlink()
    seen: list[int] = []
    make = module.build_runtime

    def counting(*arguments):
        runtime = make(*arguments)
        compute = runtime.compute
        runtime.compute = lambda images: seen.append(len(images)) or compute(images)
        return runtime

    monkeypatch.setattr(module, "build_runtime", counting)
    embed_to_folder(embedder, rows, tmp_path / "v", rows_a_part=10)
    assert sum(seen) == 10
    after = all_of(tmp_path / "v")
    assert all((after[key] == vector).all() for key, vector in before.items())


def test_processes_share_the_parts_and_only_all_of_them_are_complete(
    embedder: Embedder, rows: list[ImageRow], tmp_path: Path
) -> None:
    first = embed_to_folder(embedder, rows, tmp_path / "v", rows_a_part=10, rank=0, world=2)
    assert not first.complete
    with pytest.raises(TophitError, match="are not complete"):
        list(read_parts(tmp_path / "v"))
    second = embed_to_folder(embedder, rows, tmp_path / "v", rows_a_part=10, rank=1, world=2)
    assert second.complete
    assert sorted(path.name for path in (tmp_path / "v").glob("*.parquet")) == [
        *(f"part-0000-0000{i}.parquet" for i in range(3)),
        *(f"part-0001-0000{i}.parquet" for i in range(2)),
    ]
    embed_to_folder(embedder, rows, tmp_path / "one", rows_a_part=10)
    shared, one = all_of(tmp_path / "v"), all_of(tmp_path / "one")
    assert shared.keys() == one.keys()
    assert all((shared[key] == one[key]).all() for key in one)


def test_bad_images_are_left_out_and_remembered_over_a_restart(
    embedder: Embedder, rows: list[ImageRow], tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_text("text")
    rows = [*rows[:5], ImageRow(tmp_path / "bad.png", "x")]
    for _ in range(2):
        found = embed_to_folder(embedder, rows, tmp_path / "v", rows_a_part=5)
        assert found.count == 5
        assert list(found.bad) == [5]
        assert "not an image" in found.bad[5]
    assert read_description(tmp_path / "v")["count_of_rows"] == 5
    assert len(all_of(tmp_path / "v")) == 5


def test_other_images_models_and_settings_are_refused(embedder: Embedder, rows: list[ImageRow], tmp_path: Path) -> None:
    embed_to_folder(embedder, rows[:10], tmp_path / "v")
    with pytest.raises(UsageError, match="another list of images"):
        embed_to_folder(embedder, rows[:9], tmp_path / "v")
    with pytest.raises(UsageError, match="another number of processes"):
        embed_to_folder(embedder, rows[:10], tmp_path / "v", world=2)
    with pytest.raises(UsageError, match="another runtime"):
        embed_to_folder(embedder, rows[:10], tmp_path / "v", runtime="torch-contiguous")
    with pytest.raises(UsageError, match=r"another --part \(2048, now 100\); use the same"):
        embed_to_folder(embedder, rows[:10], tmp_path / "v", rows_a_part=100)
    with pytest.raises(UsageError, match="another model"):
        embed_to_folder(build_embedder("small", "random", dim=8, size=32), rows[:10], tmp_path / "v")
    with pytest.raises(TophitError, match="listed twice"):
        embed_to_folder(embedder, [*rows[:3], rows[0]], tmp_path / "w")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds other files"):
        embed_to_folder(embedder, rows[:10], tmp_path / "other")


def test_damage_is_found(embedder: Embedder, rows: list[ImageRow], tmp_path: Path) -> None:
    with pytest.raises(TophitError, match="no vectors in"):
        list(read_parts(tmp_path))
    embed_to_folder(embedder, rows, tmp_path / "v", rows_a_part=10)
    (tmp_path / "v" / "part-0000-00004.parquet").unlink()
    with pytest.raises(TophitError, match="expected 48 vectors, found 40"):
        list(read_parts(tmp_path / "v"))
    (tmp_path / "v" / "part-0000-00000.parquet").write_bytes(b"half of a file")
    with pytest.raises(TophitError, match=r"part-0000-00000\.parquet is damaged"):
        list(read_parts(tmp_path / "v"))


def start(data: Path, model: Path, out: Path, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tophit.cli", "embed", str(data), "--run", str(model), "--out", str(out)]
    command += ["--batch", "8", "--part", "256"]
    return subprocess.Popen(
        command, env=os.environ | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_ctrl_c_keeps_whole_parts_and_the_command_continues(embedder: Embedder, pictures: Path, tmp_path: Path) -> None:
    embedder.save(tmp_path / "model")
    rows = list(manifest_from_folder(pictures).rows)
    lines = [f"{row.path},{row.label},{x},0,32,{y}" for row in rows for x in range(4) for y in range(16, 32)]
    data = tmp_path / "many.csv"
    data.write_text("path,label,x1,y1,x2,y2\n" + "\n".join(lines) + "\n")  # 3072 boxes: twelve parts
    first = start(data, tmp_path / "model", tmp_path / "v", TOPHIT_ENGINE="torch")
    until = time.monotonic() + 300
    while not list((tmp_path / "v").glob("part-*")) and first.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=300)
    assert first.returncode == 130, errors
    assert "same command again" in errors
    left = sorted(path.name for path in (tmp_path / "v").iterdir())
    assert left[0] == "embedding.json"
    assert 1 <= len(left) - 1 < 12
    second = start(data, tmp_path / "model", tmp_path / "v", TOPHIT_ENGINE="torch")
    out, errors = second.communicate(timeout=300)
    assert second.returncode == 0, errors
    assert "3072 vectors are in" in out.replace("\n", " ")
    assert len(all_of(tmp_path / "v")) == 3072


Keeper = Callable[[Embedder, list[ImageRow], Path], object]
KEEPERS: dict[str, Keeper] = {
    "index": lambda embedder, rows, place: build_catalogue(embedder, rows, place)[0].close(),
    "embed": lambda embedder, rows, place: embed_to_folder(embedder, rows, place),
    "encode": lambda embedder, rows, place: embedder.encode([row.path for row in rows]),
}


@pytest.mark.parametrize("trained", ["nothing", "all"])
@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_one_command_computed_no_other_computes_again(
    embedder: Embedder,
    rows: list[ImageRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keeper: str,
    trained: Trained,
) -> None:
    """Of 44 images 36 pass through the network for one command, and only the other 8 for all later ones."""
    embedder.trained = trained
    rows = rows[4:]
    expected = embedder.encode([row.path for row in rows], runtime=TorchRuntime(embedder))
    KEEPERS[keeper](embedder, rows[:36], tmp_path / "first")
    computed: list[int] = []
    run = embedder.features
    monkeypatch.setattr(embedder, "features", lambda images: computed.append(len(images)) or run(images))
    embed_to_folder(embedder, rows, tmp_path / "vectors", rows_a_part=20)
    found = embedder.encode([str(row.path) for row in rows])
    with build_catalogue(embedder, rows, tmp_path / "index")[0] as catalogue:
        assert len(catalogue.index) == 44
    assert sum(computed) == 8
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(np.stack([*all_of(tmp_path / "vectors").values()]), expected, atol=1e-6)


def test_pictures_in_memory_and_networks_that_still_learn_leave_the_cache_alone(
    embedder: Embedder, rows: list[ImageRow], tmp_path: Path
) -> None:
    pictures = [np.full((40, 40, 3), 4 * number, np.uint8) for number in range(40)]
    assert embedder.encode(pictures).shape == (40, 8)
    embedder.trained = "all"
    assert len(embed_rows(embedder, rows, final=False).rows) == 48
    assert not (tmp_path / "cache" / "features").exists()


def features_of_networks(rows: list[ImageRow], tmp_path: Path, count: int) -> list[bool]:
    """Embed rows with one network after the other; return of which the features are still kept."""
    files: list[Path] = []
    for seed in range(count):
        torch.manual_seed(seed)
        embed_rows(build_embedder("small", "random", dim=8, size=32).eval(), rows)
        files += [one for one in (tmp_path / "cache" / "features").glob("*.sqlite") if one not in files]
        os.utime(files[-1], (seed + 1, seed + 1))
    return [one.exists() for one in files]


def test_features_of_the_models_used_least_recently_make_room(
    rows: list[ImageRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert features_of_networks(rows, tmp_path, 3) == [True, True, True]
    size = max(one.stat().st_size for one in (tmp_path / "cache" / "features").iterdir())
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path / "small" / "cache"))
    monkeypatch.setenv("TOPHIT_FEATURES_GB", str(2.5 * size / 1e9))
    assert features_of_networks(rows, tmp_path / "small", 3) == [False, True, True]


def test_a_cache_that_is_full_keeps_no_more(
    embedder: Embedder, rows: list[ImageRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPHIT_FEATURES_GB", "0")
    monkeypatch.setattr("tophit.models.feature_cache._WRITE_EVERY", 0)
    expected = embedder.encode([row.path for row in rows], batch_size=8)
    (file,) = (tmp_path / "cache" / "features").iterdir()
    with closing(FeatureStore(file)) as store:
        assert store.count() == 8
    np.testing.assert_allclose(embedder.encode([row.path for row in rows]), expected, atol=1e-6)
    monkeypatch.setenv("TOPHIT_FEATURES_GB", "much")
    with pytest.raises(UsageError, match="TOPHIT_FEATURES_GB is a number of gigabytes"):
        embedder.encode([row.path for row in rows])


def test_a_backbone_that_learns_between_two_calls_of_encode_leaves_the_cache_alone(
    embedder: Embedder, rows: list[ImageRow], tmp_path: Path
) -> None:
    found = []
    for _ in range(3):
        found.append(embedder.encode([row.path for row in rows]))
        with torch.no_grad():
            for weights in embedder.backbone.parameters():
                weights.mul_(1.5)
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])
    assert len(list((tmp_path / "cache" / "features").iterdir())) == 1


def test_encode_needs_no_cache_that_it_can_write_to(
    embedder: Embedder, rows: list[ImageRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path / "file" / "cache"))
    assert embedder.encode([row.path for row in rows]).shape == (48, 8)
