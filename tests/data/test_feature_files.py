from pathlib import Path

import numpy as np
import pytest

from tophit.data.feature_files import feature_file_of, features_of_rows, manifest_of_features, read_feature_file
from tophit.data.folders import open_data, part_of
from tophit.errors import TophitError, UsageError
from tophit.evaluation import retrieval_metrics
from tophit.models import load
from tophit.recipe import make_recipe, read_recipe
from tophit.training import Run, resume, train
from tophit.training.full_evaluation import evaluate_fully
from tophit.training.run import data_of_run


def toy(path: Path, classes: int = 9, each: int = 8, channels: int = 6, **arrays: np.ndarray) -> Path:
    """Write a feature file: classes of which two coordinates tell, the others are noise."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    features = generator.normal(size=(len(labels), channels))
    features[:, :2] += 3 * generator.normal(size=(classes, 2))[labels]
    np.savez(path, **({"features": features.astype(np.float16), "labels": labels} | arrays))
    return path


def test_half_of_the_sorted_classes_learns(tmp_path: Path) -> None:
    labels = np.asarray([10, 9, 2, 1, 9, 100])  # in numeric order, not as text
    manifest = open_data(str(toy(tmp_path / "f.npz", features=np.eye(6), labels=labels)))
    assert {row.label: row.split for row in manifest} == {
        "1": "train",
        "2": "train",
        "9": "test",
        "10": "test",
        "100": "test",
    }
    assert [row.path.name for row in manifest] == ["0", "1", "2", "3", "4", "5"]
    np.testing.assert_array_equal(features_of_rows(manifest.rows[2:4]), np.eye(6, dtype=np.float32)[2:4])


def test_split_and_names_of_the_file_count(tmp_path: Path) -> None:
    split = np.asarray(["test", "train", "validation"])
    path = toy(
        tmp_path / "f.npz",
        features=np.ones((3, 2)),
        labels=np.asarray(["b", "a", "c"]),
        split=split,
        names=np.asarray([b"x/1.jpg", b"2.jpg", b"3.jpg"]),
    )
    manifest = manifest_of_features(path)
    assert [row.split for row in manifest] == split.tolist()
    assert manifest.rows[0].path == tmp_path / "x/1.jpg"
    assert feature_file_of(manifest.rows) == str(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.full((3, 2), np.nan), "labels": np.arange(3)}, r"3 rows with NaN or infinity, the first is 0"),
        ({"features": np.ones(3), "labels": np.arange(3)}, r"must be floating point numbers \(N, c\)"),
        ({"features": np.ones((3, 2), int), "labels": np.arange(3)}, r"not int64 \(3, 2\)"),
        ({"features": np.ones((3, 2)), "labels": np.arange(4)}, r"'labels' must have one value per feature"),
        ({"features": np.ones((3, 2)), "labels": np.ones(3)}, r"'labels' must be whole numbers or text, not float64"),
        ({"features": np.ones((2, 2)), "labels": np.arange(2), "split": np.asarray(["train", "eval"])}, r"'eval'"),
        ({"features": np.ones((2, 2)), "labels": np.arange(2), "names": np.arange(3)}, r"'names' must have one value"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(TophitError, match=message):
        read_feature_file(tmp_path / "f.npz")


def test_missing_arrays_and_other_files_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", features=np.ones((2, 2)), images=np.ones(2))
    with pytest.raises(TophitError, match=r"no array 'labels'; it has features, images"):
        read_feature_file(tmp_path / "f.npz")
    (tmp_path / "g.npz").write_text("no archive")
    with pytest.raises(TophitError, match=r"not a .npz file of arrays"):
        read_feature_file(tmp_path / "g.npz")
    with pytest.raises(TophitError, match=r"no feature file"):
        open_data(str(tmp_path / "h.npz"))


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    path = toy(tmp_path / "f.npz")
    before = read_feature_file(path)
    assert read_feature_file(path) is before
    toy(path, channels=7)
    assert read_feature_file(path).channels == 7


def test_a_head_is_trained_and_evaluated_on_a_feature_file(tmp_path: Path) -> None:
    path = toy(tmp_path / "f.npz", classes=16)
    fields = {
        "data": {"manifest": str(path), "validation_share": 0.25},
        "embedder": {"dim": 4},
        "batches": {"classes": 4, "per_class": 4},
        "schedule": {"epochs": 3},
        "evaluation": {"per_query": True},
        "log": [],
    }
    result = train(make_recipe(fields), tmp_path / "run")
    assert Run(tmp_path / "run").recipe().embedder.backbone == "features/6"
    assert resume(tmp_path / "run")["test"] == result["test"]
    embedder = load(tmp_path / "run")
    test = part_of(data_of_run(str(tmp_path / "run"), str(path)), "test")
    vectors = embedder.embed_arrays(features_of_rows(test.rows))
    expected = retrieval_metrics(vectors, test.labels)
    assert result["test"]["recall@1"] == pytest.approx(expected["recall@1"], abs=1e-9)
    raw = retrieval_metrics(features_of_rows(test.rows), test.labels)
    assert result["before"]["MAP@R"] == pytest.approx(raw["MAP@R"], abs=1e-9)
    assert evaluate_fully(embedder, test).metrics["MAP@R"] == pytest.approx(expected["MAP@R"], abs=1e-9)
    with np.load(Run(tmp_path / "run").per_query_path) as kept:
        np.testing.assert_allclose(kept["recall@1"], expected.per_query["recall@1"])
        assert kept["labels"].tolist() == test.labels


def test_a_run_may_leave_the_test_classes_alone(tmp_path: Path) -> None:
    path = toy(tmp_path / "f.npz", classes=16)
    overrides = ["evaluation.test=false", "schedule.epochs=1", "embedder.dim=4", "batches.size=32"]
    result = train(read_recipe("head", overrides, str(path)), tmp_path / "run")
    assert result["test"] == result["before"] == {}
    assert result["validation"]


def test_features_of_another_length_and_images_are_refused(tmp_path: Path) -> None:
    part = open_data(str(toy(tmp_path / "f.npz")))
    with pytest.raises(UsageError, match=r"holds features of length 6, which a model with the backbone features/5"):
        evaluate_fully(load("features/5"), part)
    with pytest.raises(UsageError, match=r"takes features of length 6 from a file, not images"):
        load("features/6").encode(np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(UsageError, match=r"features/LENGTH"):
        load("features/many")
    recipe = make_recipe({"data": {"manifest": str(tmp_path / "f.npz")}, "embedder": {"trainable": "all"}})
    with pytest.raises(UsageError, match=r"embedder.trainable: .* holds features, not images"):
        train(recipe, tmp_path / "run")
