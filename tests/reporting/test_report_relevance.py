"""Reports of hierarchies, and of images with several labels: what is right, near and wrong, at every level."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect
from tests.reporting.reported import Opened, small_recipe, with_after
from tests.reporting.test_report_files import content_of

from tophit.data.manifest import ImageRow
from tophit.evaluation import Relevance
from tophit.evaluation.scores import search_task
from tophit.reporting.confusions import confused_pairs, levels_of_rows
from tophit.reporting.label_problems import find_label_problems
from tophit.reporting.make import make_report
from tophit.training import train

COLOURS = ("red", "green", "blue")


def table_of(pictures: Path, folder: Path, label: Callable[[int], dict[str, str]]) -> Path:
    """Write a manifest of the 8 classes: the last four, or the last images where labels are shared, for testing."""
    path = folder / "images.csv"
    shared = "labels" in label(0)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, ["path", *label(0), "split"])
        table.writeheader()
        for kind in range(8):
            for number in range(6):
                split = "test" if (number >= 3 if shared else kind >= 4) else "train"
                table.writerow({"path": pictures / f"class {kind}" / f"{number}.png", "split": split, **label(kind)})
    return path


def report_of(recipe: Any, folder: Path) -> Path:
    train(recipe, folder / "run")
    return make_report(folder / "run").page


@pytest.fixture(scope="module")
def of_levels(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of 8 classes in 2 families: the level is a column of the table."""
    folder = tmp_path_factory.mktemp("levels")
    table = table_of(pictures, folder, lambda kind: {"label": f"class {kind}", "family": f"family {kind % 2}"})
    recipe = small_recipe(table, {"name": "happier"}, 1)
    data = recipe.data.model_copy(update={"levels": ("family",)})
    return report_of(recipe.model_copy(update={"data": data}), folder)


@pytest.fixture(scope="module")
def of_sets(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of images with a class and a colour as labels, by a loss with a proxy for every label."""
    folder = tmp_path_factory.mktemp("sets")
    table = table_of(pictures, folder, lambda kind: {"labels": f"class {kind};{COLOURS[kind % 3]}"})
    return report_of(small_recipe(table, {"name": "proxy-anchor"}, 1), folder)


def names_of(content: dict[str, Any], page: Path) -> list[str]:
    from tests.reporting.test_report_files import part_of

    pictures = part_of(page, "pictures")
    return [pictures["labels"][number] for number in pictures["label"]]


def test_results_of_the_same_parent_are_near(of_levels: Path) -> None:
    content = content_of(of_levels)
    names = names_of(content, of_levels)

    def mark(query: str, found: str) -> str:
        return "right" if query == found else "near" if query.split("/")[0] == found.split("/")[0] else "wrong"

    for query in content["queries"]:
        side = query["sides"][0]
        marks = [mark(names[query["picture"]], names[item]) for item in side["items"]]
        assert side["marks"] == with_after(marks, side["relevant"])
        assert side["relevant"] == 5
    assert sum(content["first_results"].values()) == content["counts"]["queries"] == 24
    assert {"H-AP", "ASI", "level1-recall@1"} <= {row["name"] for row in content["metrics"]}
    assert "more a near one (same family)" in content["headline"]
    near = content["first_results"].get("near", 0) + content["first_results"].get("right", 0)
    recall = next(row["value"] for row in content["metrics"] if row["name"] == "level1-recall@1")
    assert near / 24 == pytest.approx(recall)


def test_a_hierarchy_in_the_browser(of_levels: Path, opened: Opened) -> None:
    page = opened(of_levels)
    expect(page.locator("#sample .legend")).to_contain_text("same family")
    assert set(page.locator("#galleries .cell.near .mark").all_inner_texts()) == {"≈"}
    expect(page.locator("#confused .first-results")).to_contain_text("near (same family)")
    colours = {
        mark: page.locator(f"#galleries .cell.{mark} .frame").first.evaluate("one => getComputedStyle(one).borderColor")
        for mark in ("right", "near", "wrong")
    }
    assert len(set(colours.values())) == 3
    page.locator("#confused select").select_option(label="family")
    expect(page.locator("#confused .lead")).to_contain_text("famil")
    facts = page.locator("#map .map-facts")
    expect(facts).to_have_text("24 images · 2 families")
    page.get_by_label("Colour by").select_option(label="class")
    expect(facts).to_have_text("24 images · 4 classes")


def test_images_with_several_labels_are_right_if_they_share_one(of_sets: Path, opened: Opened) -> None:
    content = content_of(of_sets)
    names = [set(name.split(";")) for name in names_of(content, of_sets)]
    for query in content["queries"]:
        side = query["sides"][0]
        asked = names[query["picture"]]
        marks = ["right" if asked & names[item] else "wrong" for item in side["items"]]
        assert side["marks"] == with_after(marks, side["relevant"])
    assert content["counts"]["classes"] == 8 + len(COLOURS)
    assert "24 queries of 11 labels" in content["verdict"]
    confused = {one["label"] for pair in content["confused"][0]["pairs"] for one in pair["classes"]}
    assert confused <= {*COLOURS, *(f"class {kind}" for kind in range(8))}
    assert "nearer to another class" not in {kind["name"] for kind in content["problems"]["kinds"]}
    assert {each["label"] for each in content["centres"]["classes"]} <= {
        *COLOURS,
        *(f"class {kind}" for kind in range(8)),
    }
    page = opened(of_sets)
    expect(page.locator("#sample .legend")).to_contain_text("shares a label")
    expect(page.get_by_role("heading", name="Confused labels")).to_be_visible()


def test_levels_are_named_by_the_columns_or_by_their_number() -> None:
    rows = [ImageRow(Path("a"), "x/y/z", kind="path", names=("x", "y", "z"))]
    assert [(level.title, level.names[0]) for level in levels_of_rows(rows, ("order", "family"))] == [
        ("class", ("x/y/z",)),
        ("family", ("x/y",)),
        ("order", ("x",)),
    ]
    assert [level.title for level in levels_of_rows(rows)] == ["class", "level 2", "level 1"]


def test_each_label_of_a_wrong_result_is_confused_with_each_of_the_query() -> None:
    asked = [("red", "shoe"), ("red", "hat"), ("blue",)]
    found = [("blue", "hat"), ("red",), ("red", "shoe")]
    pairs = confused_pairs(asked, found, np.array([0, 1, 2]), 10)  # the second query shares a label with its result
    assert {(pair.first, pair.second, pair.queries) for pair in pairs} == {
        ("blue", "red", 2),
        ("blue", "shoe", 2),
        ("red", "hat", 1),
        ("shoe", "hat", 1),
    }


def test_near_is_one_level_above_whatever_the_depth() -> None:
    paths = ["a/b/c", "a/b/c", "a/b/d", "a/e/f", "g/h/i"]
    task = search_task(np.eye(5, dtype=np.float32), paths, relevance=Relevance.of_paths(paths))
    assert task.marks(0, np.arange(1, 5)) == ["right", "near", "wrong", "wrong"]
    flat = search_task(np.eye(2, dtype=np.float32), ["a", "b"], relevance=Relevance.of_sets([{"a"}, {"a", "b"}]))
    assert flat.marks(0, np.array([1])) == ["right"]


def test_near_duplicates_that_share_a_label_are_no_problem(tmp_path: Path) -> None:
    rows = [
        ImageRow(tmp_path / f"{number}.png", ";".join(names), kind="several", names=names)
        for number, names in enumerate([("red", "shoe"), ("red",), ("blue",)])
    ]
    vectors = np.repeat(np.array([[1.0, 0.0]], np.float32), 3, axis=0)
    found = find_label_problems(vectors, rows)
    assert {frozenset((one.image.label, one.other.label)) for one in found} == {
        frozenset(("red;shoe", "blue")),
        frozenset(("red", "blue")),
    }
