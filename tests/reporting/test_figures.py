"""The figures say what was logged and measured: their numbers against the log, scikit-learn and plain counting."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from tophit.data.folders import open_data
from tophit.data.manifest import ImageRow
from tophit.figures import write_drawings
from tophit.figures.galleries import Ranked, gallery_drawing
from tophit.figures.maps import coordinates, map_drawing
from tophit.figures.pairs import pair_drawings
from tophit.figures.run_curves import run_drawings
from tophit.recipe import make_recipe
from tophit.reporting.local_centres import LocalCentre, NearImage, centres_drawing
from tophit.training import train


@dataclass(frozen=True)
class Model:
    name: str
    rows: list[ImageRow]
    vectors: np.ndarray
    labels: list[str]
    query: np.ndarray
    gallery: np.ndarray

    @property
    def named(self) -> tuple[str, dict[str, Any]]:
        """Return the name and the arguments of ``pair_curves``."""
        labels = np.asarray(self.labels)
        search = {"embeddings": self.vectors[self.query], "labels": labels[self.query]}
        if len(self.query) != len(self.gallery):
            search |= {"gallery": self.vectors[self.gallery], "gallery_labels": labels[self.gallery]}
        return self.name, search


def model(name: str = "it", noise: float = 1.0, split: int | None = None) -> Model:
    """Return vectors of 12 classes of 6; with ``split`` the first rows search the others."""
    generator = np.random.default_rng(3)
    labels = np.repeat(np.arange(12), 6)
    generator.shuffle(labels)
    vectors = generator.normal(size=(12, 8))[labels] + noise * generator.normal(size=(72, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = [ImageRow(Path(f"{number}.png"), str(label)) for number, label in enumerate(labels)]
    every = np.arange(72)
    query, gallery = (every, every) if split is None else (every[:split], every[split:])
    return Model(name, rows, vectors.astype(np.float32), [str(label) for label in labels], query, gallery)


def pairs(of: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return whether each pair is of one class, and its similarity, counted one by one."""
    same, scores = [], []
    for i in of.query:
        for j in of.gallery:
            if len(of.query) != len(of.gallery) or i < j:
                same.append(of.labels[i] == of.labels[j])
                scores.append(float(of.vectors[i] @ of.vectors[j]))
    return np.asarray(same), np.asarray(scores)


@pytest.mark.parametrize("split", [None, 20])
def test_curves_of_pairs_have_the_areas_of_scikit_learn(split: int | None) -> None:
    one = model(split=split)
    same, scores = pairs(one)
    curve, roc, distances = pair_drawings([one.named])
    assert f"AP {100 * average_precision_score(same, scores):.1f}" in curve.svg()
    assert f"AUC {100 * roc_auc_score(same, scores):.1f}" in roc.svg()
    recall, precision = np.asarray(curve.numbers["recall"]), np.asarray(curve.numbers["precision"])
    for place in range(0, len(recall), 50):
        accepted = scores >= np.asarray(curve.numbers["similarity"])[place] - 1e-6
        assert recall[place] == pytest.approx(same[accepted].sum() / same.sum(), abs=0.02)
        assert precision[place] == pytest.approx(same[accepted].mean(), abs=0.02)
    shares = np.asarray(distances.numbers["same class"])
    expected, _ = np.histogram(1 - scores[same], bins=np.linspace(0, 2, 101))
    assert shares.sum() == pytest.approx(1)
    assert np.abs(np.cumsum(shares) - np.cumsum(expected) / same.sum()).max() < 0.02
    assert f"{same.sum():,} pairs of the same class" in curve.caption


def test_two_models_are_in_the_same_figures() -> None:
    curve, roc, distances = pair_drawings([model("mine", 0.5).named, model("theirs", 2.0).named])
    for drawing in (curve, roc, distances):
        text = drawing.svg()
        assert "mine" in text
        assert "theirs" in text
    assert {"mine, recall", "theirs, recall"} <= set(curve.numbers)
    same_name = pair_drawings([model("it", 0.5).named, model("it", 2.0).named])[0]
    assert {"it (1), recall", "it (2), recall"} <= set(same_name.numbers)


def finished(folder: Path, data: str, **sections: Any) -> Path:
    fields = {
        "data": {"manifest": data, "validation_share": 0.3},
        "embedder": {"trainable": "head", "dim": 8},
        "batches": {"sampler": "balanced", "classes": 6, "per_class": 4},
        "schedule": {"epochs": 4},
        "evaluation": {"test": False, "before": False, "every": 1},
    }
    train(make_recipe({**fields, **sections}), folder)
    return folder


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_training_curves_are_the_runs_log(tmp_path: Path, toy_data: str) -> None:
    run = finished(tmp_path / "run", toy_data)
    (drawing,) = run_drawings(run)
    log, result = log_of(run), json.loads((run / "result.json").read_text())
    assert list(drawing.numbers["loss"]) == [line["loss"] for line in log if "loss" in line]
    assert list(drawing.numbers["validation/MAP@R"]) == pytest.approx(
        [line["validation/MAP@R"] for line in log if "validation/MAP@R" in line]
    )
    assert list(drawing.numbers["evaluated epoch"]) == [1, 2, 3, 4]
    assert np.asarray(drawing.numbers["epoch"])[-1] == 4
    assert f"marks epoch {result['best_epoch']}" in drawing.caption
    assert f"epoch {result['best_epoch']}: " in drawing.svg()


def test_a_run_in_progress_has_curves_and_one_without_a_step_has_none(tmp_path: Path, toy_data: str) -> None:
    run = finished(tmp_path / "run", toy_data)
    (run / "result.json").unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    steps = [line for line in lines if '"loss"' in line]
    (run / "metrics.jsonl").write_text("".join(steps[:2]) + '{"step": 3, "lo')  # a line is being written
    (drawing,) = run_drawings(run)
    assert list(drawing.numbers["step"]) == [1, 2]
    assert drawing.svg().startswith("<svg")
    (run / "metrics.jsonl").write_text("")
    assert run_drawings(run) == []


def test_both_stages_of_generation_have_curves(tmp_path: Path, toy_data: str) -> None:
    run = finished(
        tmp_path / "run", toy_data, loss={"name": "triplet"}, miner={"name": "uniform"}, method={"name": "generation"}
    )
    drawings = {drawing.name: drawing for drawing in run_drawings(run)}
    assert set(drawings) == {"training_curves", "generation_stages"}
    logged = [line for line in log_of(run) if "LG1" in line]
    for name in ("LG1", "LD1", "kept1", "LG2", "LD2", "kept2"):
        assert list(drawings["generation_stages"].numbers[name]) == [line[name] for line in logged]
    assert "stage 2" in drawings["generation_stages"].svg()
    said = drawings["training_curves"].caption
    assert "Pretraining ends with epoch 1; then generated samples join" in said
    assert "over 1 steps" not in said + drawings["generation_stages"].caption
    assert "its value itself" not in said
    assert "validation MAP@R (%)" in drawings["training_curves"].svg()


def test_violated_constraints_stand_by_projection(tmp_path: Path, toy_data: str) -> None:
    run = finished(
        tmp_path / "run",
        toy_data,
        loss={"name": "triplet"},
        method={"name": "projection", "steps": 4},
    )
    drawing = next(each for each in run_drawings(run) if each.name == "violated_constraints")
    logged = [line for line in log_of(run) if "violated_positive" in line]
    assert len(logged) > 1
    assert list(drawing.numbers["projection"]) == [line["projection"] + 1 for line in logged]
    assert list(drawing.numbers["violated_negative"]) == [line["violated_negative"] for line in logged]


def test_a_gallery_frames_right_and_wrong(pictures: Path, tmp_path: Path) -> None:
    rows = list(open_data(str(pictures)).rows)
    labels = [row.label for row in rows]
    wrong = next(i for i, label in enumerate(labels) if label != labels[0])
    drawing = gallery_drawing(rows, [Ranked(0, [1, wrong], [0.9, -0.001], ["right", "wrong"])], k=2)
    assert list(drawing.numbers["right"]) == [1, 0]
    assert list(drawing.numbers["image"]) == [str(rows[1].path), str(rows[wrong].path)]
    text = drawing.svg()
    assert "#168f3e" in text
    assert "#cc2929" in text
    assert ">0.00<" in text  # not -0.00
    assert text.count("<image") == 3
    assert f">{labels[wrong]}<" in text
    write_drawings([drawing], tmp_path)
    missing = [ImageRow(tmp_path / "none.png", "a"), rows[0]]
    assert "no image" in gallery_drawing(missing, [Ranked(0, [1], [0.5], ["right"])], k=1).svg()


def test_local_centres_in_use_are_shown_once(pictures: Path) -> None:
    rows = list(open_data(str(pictures)).rows)
    near = [NearImage(rows[0], 0.8), NearImage(rows[-1], 0.1)]
    label = rows[0].label
    centres = [
        LocalCentre(label, 0, 0, np.ones(2), 4, near),
        LocalCentre(label, 1, 0, np.ones(2), 1, near),  # merged with the first
        LocalCentre(label, 2, 2, np.ones(2), 2, near),
        LocalCentre(label, 3, 3, np.ones(2), 0, near),  # no image is nearest to it
    ]
    drawing = centres_drawing(centres, k=2)
    assert list(drawing.numbers["centre"]) == [1, 1, 3, 3]
    assert list(drawing.numbers["images"]) == [5, 5, 2, 2]
    assert "5 images" in drawing.svg()


@pytest.mark.parametrize("classes", [3, 40])
def test_a_map_has_every_point(classes: int) -> None:
    points = np.random.default_rng(0).normal(size=(120, 2))
    drawing = map_drawing(points, [f"class {number % classes}" for number in range(120)])
    assert len(drawing.numbers["x"]) == 120
    assert ("class 2" in drawing.svg()) == (classes == 3)
    assert f"120 images of {classes} classes by t-SNE" in drawing.caption


def test_a_map_of_many_points_is_a_small_file() -> None:
    points = np.random.default_rng(0).normal(size=(10_000, 2))
    drawing = map_drawing(points, [str(number % 100) for number in range(10_000)])
    assert len(drawing.svg()) < 2_000_000


def test_the_map_keeps_classes_together_and_copies_of_an_image_too() -> None:
    random, count = np.random.default_rng(0), 120
    labels = np.arange(count) % 6
    vectors = np.eye(8, dtype=np.float32)[labels] + 0.1 * random.normal(size=(count, 8)).astype(np.float32)
    vectors[6] = vectors[0]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    points, method = coordinates(vectors)
    assert method == "t-SNE"
    assert np.abs(points).max() == pytest.approx(1)
    distances = np.linalg.norm(points[:, None] - points[None], axis=2) + 9 * np.eye(count)
    assert (labels[distances.argmin(axis=1)] == labels).all()
    assert distances[0, 6] <= np.quantile(distances[0], 10 / count)
