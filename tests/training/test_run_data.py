"""What a run learned and what it has not seen: on its own data, on the same data elsewhere, and on other data."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from conftest import draw_picture
from tophit.api import images_for
from tophit.cli import app
from tophit.data.folders import open_images
from tophit.data.manifest import Manifest, write_manifest
from tophit.errors import UsageError
from tophit.recipe import read_recipe
from tophit.search.catalogue import open_catalogue
from tophit.serve.index_views import find_worst
from tophit.training import train
from tophit.training.run import data_of_run
from tophit.training.run_data import data_to_test, evaluation_folder, split_as_in_run

SMALL = ["embedder.backbone=small", "embedder.weights=random", "embedder.size=32", "schedule.epochs=1"]


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(read_recipe("head", SMALL, str(pictures)), folder)
    return str(folder)


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """Four classes that no run has learned."""
    for kind in range(20, 24):
        (tmp_path / "others" / f"thing {kind}").mkdir(parents=True)
        for number in range(3):
            draw_picture(kind, number).save(tmp_path / "others" / f"thing {kind}" / f"{number}.png")
    return tmp_path / "others"


@pytest.fixture
def tophit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, [str(each) for each in words], catch_exceptions=False)


def test_an_index_of_a_folder_knows_which_images_were_learned(run: str, pictures: Path, tmp_path: Path) -> None:
    splits = {row.path: row.split for row in data_of_run(run, str(pictures))}
    assert set(splits.values()) == {"train", "test"}
    found = split_as_in_run(run, open_images(str(pictures)))
    assert {row.path: row.split for row in found} == splits
    shutil.copytree(pictures, tmp_path / "copied")
    copied = split_as_in_run(run, open_images(str(tmp_path / "copied")), by_class=True)
    assert {(row.label, row.split) for row in copied} == {(row.label, row.split) for row in found}, "its classes are"
    rows = tuple(replace(row, split="test") for row in open_images(str(pictures)))
    write_manifest(Manifest(rows, "all"), tmp_path / "all.csv")
    listed = images_for(str(tmp_path / "all.csv"), run, "all")
    assert {row.path: row.split for row in listed} == splits, "whatever the manifest says of images that were learned"
    assert {row.split for row in split_as_in_run("small", open_images(str(pictures)))} == {"test"}  # learned nothing


def test_the_worst_queries_of_an_index_are_of_classes_that_were_not_learned(
    run: str, pictures: Path, tmp_path: Path, tophit: Callable[..., Any]
) -> None:
    tophit("index", pictures, "--run", run, "--out", tmp_path / "index")
    with open_catalogue(tmp_path / "index") as catalogue:
        splits = {item.id: item.metadata["split"] for item in catalogue.index.items()}
        worst = find_worst(catalogue.index)
    tests = {name for name, split in splits.items() if split == "test"}
    assert 0 < len(tests) < len(splits) == 48
    assert (worst.unseen, worst.tried) == (True, len(tests))
    assert {query.id for query in worst.queries} <= tests


def test_other_data_are_tested_whole_and_do_not_replace_the_runs_own_evaluation(
    run: str, pictures: Path, others: Path, tophit: Callable[..., Any]
) -> None:
    tophit("evaluate", run)
    own = json.loads(Path(run, "evaluation", "evaluation.json").read_text())
    assert own["queries"] == 24  # of the four test classes
    said = json.loads(tophit("evaluate", run, "--data", others, "--json").stdout)
    assert said["queries"] == 12  # all four classes of three
    assert json.loads(Path(run, "evaluation", "evaluation.json").read_text()) == own
    folder = evaluation_folder(run, str(others), "test")
    assert folder is not None
    assert json.loads((folder / "evaluation.json").read_text())["queries"] == 12
    assert folder.parent == Path(run, "evaluation")
    assert evaluation_folder(run, str(pictures), "train") == Path(run, "evaluation", "train")


def test_the_same_data_elsewhere_are_split_as_in_the_run(run: str, pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(pictures, tmp_path / "moved")
    expected = {(row.label, row.split) for row in data_of_run(run, str(pictures))}
    assert {(row.label, row.split) for row in data_to_test(run, str(tmp_path / "moved"))} == expected
    assert evaluation_folder(run, str(tmp_path / "moved"), "test") == Path(run, "evaluation")


def test_images_that_the_run_learned_are_no_test_within_other_data(
    run: str, pictures: Path, others: Path, tmp_path: Path
) -> None:
    both = tmp_path / "both"
    both.mkdir()
    for folder in (pictures, others):
        for child in folder.iterdir():
            (both / child.name).symlink_to(child)
    found = data_to_test(run, str(both))  # other paths, other files
    assert {row.split for row in found} == {"test"}
    table = tmp_path / "all.csv"
    lines = [
        f"{path},{path.parent.name},test" for folder in (pictures, others) for path in sorted(folder.rglob("*.png"))
    ]
    table.write_text("\n".join(["path,label,split", *lines]))
    learned = {row.path for row in data_of_run(run, str(pictures)) if row.split != "test"}
    assert {row.path for row in data_to_test(run, str(table)) if row.split != "test"} == learned


def test_only_a_run_needs_no_data(run: str) -> None:
    assert len(data_to_test(run, None)) == 48
    with pytest.raises(UsageError, match=r"Name the data: --data PATH\. Only a run knows its own, and small is not"):
        data_to_test("small", None)
