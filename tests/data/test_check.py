from pathlib import Path

import pytest

from conftest import draw_picture
from tophit.data.check import check_manifest, write_problems
from tophit.data.folders import manifest_from_folder
from tophit.data.manifest import ImageRow, Manifest


@pytest.fixture
def flawed(tmp_path: Path) -> Manifest:
    draw_picture(0, 0).save(tmp_path / "a.png")
    draw_picture(0, 0).save(tmp_path / "same pixels.bmp")
    draw_picture(1, 1).save(tmp_path / "b.png")
    draw_picture(1, 2).save(tmp_path / "c.png")
    (tmp_path / "bad.jpg").write_text("no image")
    files = [
        ("a.png", "zero", "train"),
        ("same pixels.bmp", "zero", "test"),
        ("b.png", "one", "train"),
        ("c.png", "one", "train"),
        ("bad.jpg", "one", "train"),
        ("b.png", "lonely", "train"),
    ]
    return Manifest(tuple(ImageRow(tmp_path / name, label, split) for name, label, split in files))


def test_every_kind_of_problem_is_found_with_its_rows(flawed: Manifest) -> None:
    found = {(problem.kind, problem.rows) for problem in check_manifest(flawed)}
    assert found == {
        ("unreadable", (5,)),
        ("duplicate across splits", (1, 2)),
        ("class with one image", (6,)),
        ("class in two splits", (1, 2)),
    }


def test_a_sound_set_has_no_problems(pictures: Path) -> None:
    assert check_manifest(manifest_from_folder(pictures)) == []


def test_problems_are_written_as_csv(flawed: Manifest, tmp_path: Path) -> None:
    write_problems(check_manifest(flawed), tmp_path / "problems.csv")
    lines = (tmp_path / "problems.csv").read_text().splitlines()
    assert lines[0] == "kind,rows,detail"
    assert len(lines) == 5
    assert "bad.jpg" in lines[1]


def test_too_few_classes_to_learn_from_are_a_problem(pictures: Path) -> None:
    rows = manifest_from_folder(pictures).rows
    one = Manifest(tuple(row for row in rows if row.label == "class 1"))
    assert [(problem.kind, problem.detail) for problem in check_manifest(one)] == [
        ("too few classes", "all images are of the class 'class 1'; at least two classes are needed")
    ]
    labels = sorted({row.label for row in rows if row.split == "train"})[1:]
    few = Manifest(tuple(row for row in rows if row.label not in labels))
    (problem,) = check_manifest(few)
    assert "all images for training are of the class" in problem.detail
    assert few.rows[problem.rows[0] - 1].split == "train"
