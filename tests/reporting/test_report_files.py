"""What a report writes: the page and its pictures, the CSV, the figures; and what it refuses."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reporting.reported import DUPLICATE, MISLABELLED, Opened, Reported, small_recipe, with_after

from conftest import draw_picture
from tophit.data.manifest import ImageRow
from tophit.errors import TophitError, UsageError
from tophit.reporting.content import Background, gather
from tophit.reporting.make import make_report
from tophit.reporting.measured import measured
from tophit.reporting.page import write_page
from tophit.reporting.pictures import Pictures, Thumbnails
from tophit.training import train
from tophit.training.run import Run, data_of_run


def content_of(page: Path) -> dict[str, Any]:
    return part_of(page, "content")


def part_of(page: Path, name: str) -> dict[str, Any]:
    found = re.search(rf'id="report-{name}">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    return json.loads(found[1])


def test_the_command_writes_one_file_and_says_the_verdict(report_page: Path) -> None:
    printed = (report_page.parent / "printed.txt").read_text()
    assert re.search(r"MAP@R is \d+\.\d% \(\d+\.\d to \d+\.\d\) on 50 queries of 6 classes", printed)
    assert "two.html" in printed
    names = sorted(path.name for path in report_page.parent.iterdir())
    assert names == ["figures", "printed.txt", "two.html", "two_label_problems.csv"]


def test_metrics_are_those_of_the_run_and_the_difference_is_paired(report_page: Path, reported: Reported) -> None:
    content = content_of(report_page)
    result = json.loads((reported.run / "result.json").read_text())
    for row in content["metrics"]:
        assert row["value"] == pytest.approx(result["test"][row["name"]], abs=1e-6)
        assert row["interval"] == pytest.approx(result["intervals"][row["name"]], abs=1e-6)
        assert row["difference"] == pytest.approx(row["value"] - row["other"])
        assert row["bounds"][0] <= row["difference"] <= row["bounds"][1]
    assert content["verdict"].startswith(f"MAP@R is {100 * result['test']['MAP@R']:.1f}%")


def test_planted_label_problems_are_in_the_csv_and_on_the_page(report_page: Path) -> None:
    with (report_page.parent / "two_label_problems.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    told = {(row["kind"], "/".join(Path(row[name]).parts[-2:])) for row in found for name in ("image", "other image")}
    assert ("exact duplicate, different labels", DUPLICATE) in told
    assert MISLABELLED in {name for _, name in told}
    kinds = content_of(report_page)["problems"]["kinds"]
    shown = {image["file"] for kind in kinds for one in kind["shown"] for image in one["images"]}
    assert {DUPLICATE, MISLABELLED} <= shown


def test_figures_come_with_their_numbers(report_page: Path) -> None:
    names = {path.stem for path in (report_page.parent / "figures").iterdir()}
    assert {"precision_recall", "roc", "distances", "training_curves", "map"} <= names
    assert {"gallery_best", "gallery_worst", "gallery_random"} <= names
    for name in names:
        assert {path.suffix for path in (report_page.parent / "figures").glob(f"{name}.*")} == {
            ".png",
            ".svg",
            ".pdf",
            ".csv",
        }


def test_the_maps_numbers_lead_to_the_images(report_page: Path) -> None:
    with (report_page.parent / "figures" / "map.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert len(found) == 50
    assert all(Path(row["image"]).parent.name == row["label"] and Path(row["image"]).is_file() for row in found)


def test_text_of_labels_and_names_can_not_end_the_script(report_page: Path) -> None:
    text = report_page.read_text(encoding="utf-8")
    assert content_of(report_page)["models"][1] == "<b>other"
    assert "<b>other" not in text
    assert not re.search(r"""(?:src|href)=["']?https?:|url\(["']?https?:""", text)


def some_rows(folder: Path, count: int) -> list[ImageRow]:
    rows = []
    for number in range(count):
        draw_picture(number % 3, number, 40).save(folder / f"{number}.png")
        rows.append(ImageRow(folder / f"{number}.png", f"class {number % 3}"))
    return rows


def test_many_pictures_go_into_a_folder_beside_the_page_and_few_do_not(tmp_path: Path) -> None:
    rows = some_rows(tmp_path, 12)
    (tmp_path / "out").mkdir()
    page = tmp_path / "out" / "report.html"
    vectors = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    for inside, there in ((2000, True), (10**6, False)):
        pictures = Pictures()
        content = gather(measured("run", rows, vectors), None, Background(), pictures)
        with Thumbnails(pictures, page.parent, inside) as thumbnails:
            write_page(page, {**content, "notes": []}, thumbnails.make())
        text = page.read_text()
        folder = page.parent / "report_files"
        assert folder.is_dir() == there
        names = [path.name for path in page.parent.iterdir()]
        assert sorted(names) == ["report.html", "report_files"][: 1 + there]
        if there:
            assert len(list(folder.rglob("*.webp"))) == 12
            assert '"folder":"report_files"' in text


def test_a_failure_leaves_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "report.html"
    page.write_text("old")
    with Thumbnails(Pictures(), tmp_path) as thumbnails, pytest.raises(TypeError):
        write_page(page, {"models": ["a"], "broken": object()}, thumbnails)
    assert page.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_what_can_not_be_reported_is_said_plainly(reported: Reported, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no run in"):
        make_report(tmp_path)
    shutil.copytree(reported.run, tmp_path / "stopped")
    (tmp_path / "stopped" / "result.json").unlink()
    with pytest.raises(UsageError, match=r"has not finished; tophit train --resume"):
        make_report(tmp_path / "stopped")
    lines = (reported.images / "manifest.csv").read_text().splitlines()
    (tmp_path / "learned.csv").write_text("\n".join([lines[0], *(line for line in lines[1:] if ",train" in line)]))
    with pytest.raises(TophitError, match=r"no images in the split 'test'"):
        make_report(reported.run, data=str(tmp_path / "learned.csv"))


def test_roles_divide_the_report_into_queries_and_gallery(tmp_path: Path) -> None:
    rows = [
        ImageRow(row.path, row.label, role="query" if number < 4 else "gallery")
        for number, row in enumerate(some_rows(tmp_path, 12))
    ]
    vectors = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    pictures = Pictures()
    content = gather(measured("run", rows, vectors), None, Background(), pictures)
    assert content["counts"] == {"queries": 4, "skipped": 0, "gallery": 8, "images": 12, "classes": 3}
    for query in content["queries"]:
        assert pictures.rows[query["picture"]].role == "query"
        assert {pictures.rows[item].role for item in query["sides"][0]["items"]} == {"gallery"}
        assert len(query["sides"][0]["items"]) == 8


def test_a_run_on_a_feature_file_is_reported_without_pictures(tmp_path: Path, opened: Opened) -> None:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 6)
    features = random.normal(size=(8, 12))[labels] + random.normal(size=(48, 12))
    names = np.repeat(["one.png", "two.png"], 24)  # names may repeat
    np.savez(tmp_path / "features.npz", features=features.astype(np.float32), labels=labels, names=names)
    recipe = small_recipe(tmp_path / "features.npz", {"name": "proxy-anchor"}, 1)
    fields = recipe.model_copy(update={"embedder": recipe.embedder.model_copy(update={"trainable": "head"})})
    train(fields, tmp_path / "run")
    written = make_report(tmp_path / "run")
    assert written.page == tmp_path / "run" / "report.html"
    content, pictures = content_of(written.page), part_of(written.page, "pictures")
    assert any("no pictures" in note for note in content["notes"])
    of = [pictures["labels"][label] for label in pictures["label"]]
    for query in content["queries"]:
        (side,) = query["sides"]
        marks = ["right" if of[item] == of[query["picture"]] else "wrong" for item in side["items"]]
        assert side["marks"] == with_after(marks, side["relevant"])
    frame = opened(written.page).locator("#galleries .cell .frame").first.bounding_box()
    assert frame is not None
    assert frame["height"] < frame["width"] / 2  # a label's box, not the place of a picture


def test_places_that_can_not_be_written_are_refused_before_the_work(reported: Reported, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"is a folder; name a file"):
        make_report(reported.run, out=tmp_path)
    with pytest.raises(UsageError, match=r"is a file; name a folder"):
        make_report(reported.run, figures=tmp_path / "file")
    with pytest.raises(UsageError, match=r"There is no folder"):
        make_report(reported.run, out=tmp_path / "missing" / "report.html")


def test_data_that_moved_lead_to_the_option(reported: Reported, tmp_path: Path) -> None:
    shutil.copytree(reported.run, tmp_path / "run")
    recipe = tmp_path / "run" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace(str(reported.images), str(tmp_path / "gone")))
    with pytest.raises(UsageError, match=r"If the run's data have moved: --data PATH"):
        make_report(tmp_path / "run")


def test_other_images_than_the_runs_own_are_told(reported: Reported, tmp_path: Path) -> None:
    """The value before training is left out, it is of other images; missing ones and learned ones are counted."""
    lines = (reported.images / "manifest.csv").read_text().splitlines()
    exchanged = [line.replace(",train", ",x").replace(",test", ",train").replace(",x", ",test") for line in lines]
    (reported.images / "exchanged.csv").write_text("\n".join([*exchanged, "missing.png,class 1,test"]))
    recipe = Run.open(reported.other).recipe()
    written = make_report(
        reported.run, str(reported.other), data=str(reported.images / "exchanged.csv"), out=tmp_path / "page.html"
    )
    notes = content_of(written.page)["notes"]
    assert "1 test images could not be read and are left out." in notes
    learned = len(data_of_run(str(reported.other), recipe.data.manifest)) - 50  # 50 images of six classes are tested
    assert any(f"learned from {learned} of these {learned} images" in note for note in notes)
    assert "before training" not in written.verdict


def relabelled(lines: list[str]) -> list[str]:
    return [line.replace("class 11,", "class 10,") if "class 11/2.png" in line else line for line in lines]


def shortened(lines: list[str]) -> list[str]:
    return [line for line in lines if "class 11/2.png" not in line]


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize(
    ("change", "same"), [(relabelled, False), (shortened, False), (lambda lines: [lines[0], *lines[:0:-1]], True)]
)
def test_the_value_before_training_is_told_only_of_the_same_queries(
    change: Callable[[list[str]], list[str]], same: bool, earlier: bool, reported: Reported, tmp_path: Path
) -> None:
    """The metric alone moves too little to tell; the order and the folder of the rows do not count."""
    images, run = shutil.copytree(reported.images, tmp_path / "moved"), shutil.copytree(reported.run, tmp_path / "run")
    lines = change((images / "manifest.csv").read_text().splitlines())
    (images / "changed.csv").write_text("\n".join(lines) + "\n")
    result = json.loads((run / "result.json").read_text())
    result["before"] = {name: value / 2 for name, value in result["test"].items()}
    result |= {"gain": {"MAP@R": {"mean": 0.1, "low": 0.0, "high": 0.2}}, "gain_classes": 6}
    if earlier:  # a run of an earlier version did not keep which rows it was tested on
        del result["test_rows"]
    (run / "result.json").write_text(json.dumps(result))
    written = make_report(run, data=str(images / "changed.csv"))
    notes = " ".join(content_of(written.page)["notes"])
    assert ("points above the backbone before training" in written.verdict) == same
    assert ("before training the first was right" in written.verdict) == same
    assert ("Against the untrained backbone on the 6 test classes" in notes) == same
    assert ("The run was tested on other images or labels than these" in notes) == (not same)
