import csv
import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.label_problems import lying_in_another_class

from tophit.data.folders import open_data
from tophit.data.manifest import ImageRow
from tophit.errors import UsageError
from tophit.reporting.label_problems import (
    COLUMNS,
    EXACT_LABELS,
    EXACT_SPLITS,
    NEAR_LABELS,
    NEARER,
    LabelProblem,
    find_label_problems,
    find_measured_problems,
    write_label_problems,
)


def clusters(classes: int, each: int, noise: float, dim: int = 16, seed: int = 0) -> tuple[np.ndarray, list[ImageRow]]:
    """Return unit vectors around class centres, and rows without files."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(classes, dim))
    labels = np.repeat(np.arange(classes), each)
    vectors = centres[labels] / np.linalg.norm(centres[labels], axis=1, keepdims=True)
    vectors = vectors + noise * generator.normal(size=vectors.shape) / np.sqrt(dim)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = [ImageRow(Path(f"{label}/{number}.png"), f"class {label}") for number, label in enumerate(labels)]
    return vectors.astype(np.float32), rows


def of_kind(problems: list[LabelProblem], kind: str) -> list[LabelProblem]:
    return [problem for problem in problems if problem.kind == kind]


def test_a_planted_label_error_is_the_first_found() -> None:
    vectors, rows = clusters(20, 8, 0.5)
    assert find_label_problems(vectors, rows) == []
    rows[19] = dataclasses.replace(rows[19], label="class 11")
    found = find_label_problems(vectors, rows)
    assert [problem.image for problem in found] == [rows[19]]
    assert (found[0].kind, found[0].other.label) == (NEARER, "class 2")
    assert found[0].score > 0.3
    assert "class 2" in found[0].advice


@pytest.mark.parametrize("noise", [0.5, 1.4, 2.2])
def test_the_precision_that_is_told_is_not_above_the_one_a_person_would_find(noise: float) -> None:
    """Errors of our own, which the measurement does not know: as many as it plants."""
    shares, told = [], []
    for seed in range(4):
        vectors, rows = clusters(40, 10, noise, seed=seed)
        wrong = np.random.default_rng(seed).choice(len(rows), 10, replace=False).tolist()
        for i in wrong:
            rows[i] = dataclasses.replace(rows[i], label=f"class {(int(rows[i].label.split()[1]) + 7) % 40}")
        found, planted = find_measured_problems(vectors, rows)
        assert planted is not None
        assert planted.changed == 10
        suspects = of_kind(found, NEARER)
        shares.append(np.mean([any(problem.image is rows[i] for i in wrong) for problem in suspects[:10]]))
        told.append(planted.precision)
        assert all(problem.precision is not None and 0 <= problem.precision <= 1 for problem in suspects)
    assert np.mean(told) <= np.mean(shares) + 0.1


def test_planted_errors_come_first_among_clear_classes_and_not_among_blurred_ones() -> None:
    told = [find_measured_problems(*clusters(40, 10, noise, seed=3))[1] for noise in (0.5, 2.2)]
    precisions = [planted.precision for planted in told if planted is not None]
    assert precisions[0] > 0.95
    assert precisions[1] < 0.6


def test_too_few_images_are_not_measured() -> None:
    vectors, rows = clusters(3, 4, 0.3)
    found, planted = find_measured_problems(vectors, rows)
    assert planted is None
    assert all(problem.precision is None for problem in found)


def test_classes_that_are_mixed_up_as_a_whole_are_not_label_errors() -> None:
    """Two labels for the same things: the images lie in both, and none of them more than the others."""
    vectors, rows = clusters(10, 12, 0.6)
    rows = [dataclasses.replace(row, label=f"{row.label} {number % 2}") for number, row in enumerate(rows)]
    found = find_label_problems(vectors, rows)
    assert len(found) < 0.15 * len(rows)


def test_an_image_alone_in_its_class_is_not_judged() -> None:
    vectors, rows = clusters(6, 5, 0.3)
    rows[7] = dataclasses.replace(rows[7], label="alone")
    assert find_label_problems(vectors, rows) == []


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 8), st.integers(1, 7), st.floats(0.3, 2.0), st.integers(0, 10_000))
def test_the_judgement_is_the_literal_definition(classes: int, each: int, noise: float, seed: int) -> None:
    vectors, rows = clusters(classes, each, noise, seed=seed)
    generator = np.random.default_rng(seed)
    for i in generator.choice(len(rows), len(rows) // 5, replace=False):
        rows[i] = dataclasses.replace(rows[i], label=f"class {generator.integers(classes)}")
    expected = lying_in_another_class(vectors, [row.label for row in rows])
    found = of_kind(find_label_problems(vectors, rows, near=1.0), NEARER)
    places = {id(row): number for number, row in enumerate(rows)}
    assert {places[id(problem.image)]: problem.other.label for problem in found} == {
        image: name for image, (name, _) in expected.items()
    }
    for problem in found:
        assert problem.score == pytest.approx(expected[places[id(problem.image)]][1], abs=1e-5)
    assert [problem.score for problem in found] == sorted((problem.score for problem in found), reverse=True)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_order_and_budget_change_nothing(seed: int) -> None:
    vectors, rows = clusters(8, 6, 1.2, seed=seed)
    order = np.random.default_rng(seed).permutation(len(rows))

    def found(vectors: np.ndarray, rows: list[ImageRow], memory_budget: int) -> dict[tuple[str, str, str], float]:
        problems = find_label_problems(vectors, rows, memory_budget=memory_budget, near=0.9)
        return {
            (problem.kind, *sorted((str(problem.image.path), str(problem.other.path)))): problem.score
            for problem in problems
        }

    first = found(vectors, rows, 2**28)
    second = found(vectors[order], [rows[i] for i in order], 1)
    assert second.keys() == first.keys()
    assert all(second[key] == pytest.approx(score, abs=1e-5) for key, score in first.items())


def test_near_duplicates_are_reported_once_and_only_with_different_labels() -> None:
    vectors, rows = clusters(10, 6, 0.8)
    vectors[7], vectors[13], vectors[20] = vectors[40], vectors[12], vectors[41]
    found = of_kind(find_label_problems(vectors, rows), NEAR_LABELS)
    pairs = {frozenset((str(problem.image.path), str(problem.other.path))) for problem in found}
    assert pairs == {
        frozenset((str(rows[a].path), str(rows[b].path))) for a, b in ((7, 40), (20, 41))
    }  # 12 and 13 have one label
    assert all(problem.score == pytest.approx(1, abs=1e-5) for problem in found)


@pytest.fixture
def copied(tmp_path: Path, pictures: Path) -> list[ImageRow]:
    """Pictures with two planted copies: one in another class, one in another split."""
    folder = tmp_path / "data"
    shutil.copytree(pictures, folder)
    shutil.copy(folder / "class 1" / "2.png", folder / "class 5" / "copy.png")
    shutil.copy(folder / "class 3" / "0.png", folder / "class 3" / "copy.png")
    rows = list(open_data(str(folder)).rows)
    split = {folder / "class 3" / "copy.png": "train"}
    return [dataclasses.replace(row, split=split.get(row.path, "test")) for row in rows]


def test_planted_exact_duplicates_are_found_by_their_bytes(copied: list[ImageRow]) -> None:
    vectors, _ = clusters(1, len(copied), 5.0)
    test = [i for i, row in enumerate(copied) if row.split == "test"]
    others = [row for row in copied if row.split != "test"]
    found = find_label_problems(vectors[test], [copied[i] for i in test], others=others)
    relabelled, moved = of_kind(found, EXACT_LABELS), of_kind(found, EXACT_SPLITS)
    assert [{problem.image.path.name, problem.other.path.name} for problem in relabelled] == [{"copy.png", "2.png"}]
    assert {relabelled[0].image.label, relabelled[0].other.label} == {"class 1", "class 5"}
    assert [{problem.image.split, problem.other.split} for problem in moved] == [{"train", "test"}]
    assert "Remove it from train" in moved[0].advice
    assert "leak" not in relabelled[0].reason  # both are in test
    for problem in found:
        assert problem.reason[0].isupper()
        assert problem.advice[0].isupper()


def test_an_exact_duplicate_with_another_label_in_another_split_is_a_leak_too(copied: list[ImageRow]) -> None:
    copy = next(row for row in copied if (row.label, row.path.name) == ("class 5", "copy.png"))
    learned = dataclasses.replace(copy, split="train")
    test = [row for row in copied if row.split == "test" and row is not copy]
    vectors, _ = clusters(1, len(test), 5.0)
    (problem,) = of_kind(find_label_problems(vectors, test, others=[learned]), EXACT_LABELS)
    assert "it leaks: it is in test and train" in problem.reason
    assert "keep the right label, and remove it from train" in problem.advice


def test_an_exact_duplicate_is_not_reported_again_as_nearer_to_another_class(tmp_path: Path) -> None:
    """Image 19 shows class 2 and is labelled class 11; then it is a copy of image 20, which has the right label."""
    vectors, rows = clusters(20, 8, 0.5)
    rows[19] = dataclasses.replace(rows[19], label="class 11")
    assert [problem.image for problem in find_label_problems(vectors, rows)] == [rows[19]]
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"the same")
    rows[19] = dataclasses.replace(rows[19], path=tmp_path / "a.png")
    rows[20] = dataclasses.replace(rows[20], path=tmp_path / "b.png")
    assert [problem.kind for problem in find_label_problems(vectors, rows)] == [EXACT_LABELS]


def test_boxes_of_one_file_are_different_images(copied: list[ImageRow]) -> None:
    one = copied[0]
    rows = [
        dataclasses.replace(one, box=(0, 0, 8, 8), label="a"),
        dataclasses.replace(one, box=(8, 8, 16, 16), label="b"),
        dataclasses.replace(one, box=(0, 0, 8, 8), label="c"),
    ]
    found = of_kind(find_label_problems(np.eye(3, dtype=np.float32), rows), EXACT_LABELS)
    assert [(problem.image.label, problem.other.label) for problem in found] == [("c", "a")]


def test_the_csv_has_what_a_person_needs(copied: list[ImageRow], tmp_path: Path) -> None:
    vectors, _ = clusters(1, len(copied), 5.0)
    problems = find_label_problems(vectors, copied)
    write_label_problems(problems, tmp_path / "problems.csv", root=tmp_path / "data")
    with (tmp_path / "problems.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == COLUMNS
    assert len(lines) == len(problems)
    first = next(line for line in lines if line["kind"] == EXACT_LABELS)
    assert {first["image"], first["other image"]} == {"class 1/2.png", "class 5/copy.png"}
    assert all(line["reason"] and line["what to do"] for line in lines)
    write_label_problems([], tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text().strip() == ",".join(COLUMNS)


def test_a_wrong_call_is_explained() -> None:
    vectors, rows = clusters(2, 3, 0.1)
    with pytest.raises(UsageError, match=r"shape \(6, d\)"):
        find_label_problems(vectors[:5], rows)
    with pytest.raises(UsageError, match=r"at most 1, not 1.5"):
        find_label_problems(vectors, rows, near=1.5)


def test_a_collapsed_embedder_gives_a_bounded_list() -> None:
    rows = [ImageRow(Path(f"{number}.png"), str(number // 2)) for number in range(3000)]
    vectors = np.tile(np.float32([0.6, 0.8]), (3000, 1))
    found = find_label_problems(vectors, rows, memory_budget=2**24)
    assert 5_000 < len(of_kind(found, NEAR_LABELS)) <= 10_000
    assert of_kind(found, NEARER) == []
