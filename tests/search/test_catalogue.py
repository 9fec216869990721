from pathlib import Path

import pytest

from conftest import draw_picture
from tophit.data.folders import open_images
from tophit.data.manifest import ImageRow
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.search.catalogue import build_catalogue, open_catalogue


def test_a_catalogue_finds_its_own_images_and_skips_unreadable_ones(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("text")
    rows = [*open_images(str(pictures)).rows, ImageRow(tmp_path / "bad.png", "x")]
    embedder = build_embedder("small", "random", dim=16, size=32)
    _, bad = build_catalogue(embedder, rows, tmp_path / "index")
    assert list(bad) == [48]
    catalogue = open_catalogue(tmp_path / "index")
    assert len(catalogue.index) == 48
    path = rows[17].path
    hit = catalogue.search([path], k=3)[0][0]
    assert (hit.id, hit.metadata["label"]) == (str(path), rows[17].label)
    assert hit.score == pytest.approx(1, abs=1e-5)
    assert catalogue.search([draw_picture(2, 99)], k=1)[0][0].rank == 1
    with pytest.raises(TophitError, match="None of the 1 images could be read"):
        build_catalogue(embedder, rows[-1:], tmp_path / "none")
    with pytest.raises(UsageError, match="holds other files; an index needs a folder of its own"):
        build_catalogue(embedder, rows, pictures)


def test_an_index_refuses_an_embedder_that_did_not_make_it(pictures: Path, tmp_path: Path) -> None:
    build_catalogue(build_embedder("small", "random", dim=16, size=32), open_images(str(pictures)).rows, tmp_path)
    build_embedder("small", "random", dim=16, size=32).save(tmp_path / "v1" / "embedder")
    with pytest.raises(TophitError, match="not the one that made the index"):
        open_catalogue(tmp_path)
