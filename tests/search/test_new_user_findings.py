"""What a new user stumbled over in searches: filters and chances, labels that vanish, hints, the most results."""

from pathlib import Path

import numpy as np
import pytest
import torch

import tophit
from tophit.data.manifest import ImageRow
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.recipe import make_recipe
from tophit.search.catalogue import Catalogue, build_catalogue, open_catalogue
from tophit.search.field_values import why_nothing


@pytest.fixture(scope="module")
def calibrated(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of 8 classes, which are enough to calibrate on."""
    torch.manual_seed(0)
    rows = [ImageRow(path, path.parent.name) for path in sorted(pictures.rglob("*.png"))]
    folder = tmp_path_factory.mktemp("chances") / "index"
    catalogue, _ = build_catalogue(build_embedder("small", "random", dim=16, size=32), rows, folder)
    catalogue.close()
    return folder


def chances(catalogue: Catalogue, query: Path, **options: object) -> dict[str, float]:
    hits = catalogue.search([query], k=48, **options)[0]  # type: ignore[arg-type]
    return {hit.id: hit.chance or 0.0 for hit in hits}


def test_a_filter_makes_no_result_likelier(calibrated: Path, pictures: Path) -> None:
    with open_catalogue(calibrated) as catalogue:
        for kind in range(3):
            query = pictures / f"class {kind}" / "0.png"
            everything = chances(catalogue, query)
            filtered = chances(catalogue, query, where={"label": "class 7"})
            assert filtered == pytest.approx({name: everything[name] for name in filtered})
            assert len(filtered) == 6


def test_as_many_results_as_allowed_can_be_asked_for_by_an_item(calibrated: Path, pictures: Path) -> None:
    with open_catalogue(calibrated) as catalogue:
        most = catalogue.index.most_results
        found = catalogue.search_ids([str(pictures / "class 0" / "0.png")], k=most)[0]
    assert len(found) == 47


def test_images_of_one_folder_keep_the_labels_they_have(pictures: Path, tmp_path: Path) -> None:
    torch.manual_seed(1)
    embedder = build_embedder("small", "random", dim=8, size=32)
    embedder.save(tmp_path / "model")
    tophit.index(pictures, tmp_path / "model", out=tmp_path / "index").close()
    again = tophit.index(pictures / "class 3", tmp_path / "model", out=tmp_path / "index")
    with again as catalogue:
        labels = [item.metadata["label"] for item in catalogue.index.items() if "class 3" in item.id]
    assert labels == ["class 3"] * 6


def test_images_without_labels_are_told(pictures: Path, tmp_path: Path, tophit: object) -> None:
    build_embedder("small", "random", dim=8, size=32).save(tmp_path / "model")
    done = tophit("index", pictures / "class 3", "--run", tmp_path / "model", "--out", tmp_path / "index")  # type: ignore[operator]
    assert "6 images of" in done.stdout
    assert "have no label" in done.stdout


def test_a_value_that_was_nearly_right_is_suggested(calibrated: Path) -> None:
    with open_catalogue(calibrated) as catalogue:
        assert "Did you mean 'class 7'?" in why_nothing(catalogue.index, {"label": "Class 7"})
        assert "Did you mean" not in why_nothing(catalogue.index, {"label": "zebra"})


def test_one_level_needs_no_brackets() -> None:
    recipe = make_recipe({"data": {"manifest": "a.csv", "levels": "family"}})
    assert recipe.data.levels == ("family",)


def test_several_labels_can_not_be_calibrated_and_it_is_said(pictures: Path, tmp_path: Path) -> None:
    rows = [
        ImageRow(path, f"{path.parent.name};red", kind="several", names=(path.parent.name, "red"))
        for path in sorted(pictures.rglob("*.png"))
    ]
    catalogue, _ = build_catalogue(build_embedder("small", "random", dim=8, size=32), rows, tmp_path / "index")
    with catalogue:
        assert catalogue.calibration is None
        assert {item.metadata["label_kind"] for item in catalogue.index.items()} == {"several"}
        assert np.isfinite(catalogue.search([rows[0].path])[0][0].score)
    with pytest.raises(TophitError, match="one label each; these have several"):
        tophit.calibrate(tmp_path / "index")


def test_a_mistyped_index_is_called_so_by_calibrate() -> None:
    with pytest.raises(UsageError, match="There is no run, embedder or index in 'mine"):
        tophit.calibrate("mine.indx")
