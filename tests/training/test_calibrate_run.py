"""A run calibrates what it kept, on classes that training did not see; an evaluation does where that is missing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import draw_picture

import tophit
from tophit.calibrating import NAME, read_calibration
from tophit.data.manifest import ImageRow, Manifest, write_manifest
from tophit.errors import TophitError, UsageError
from tophit.recipe import make_recipe
from tophit.training import TrainingResult, train
from tophit.training.calibrate_rows import calibrate_vectors

LEARNED, TESTED = 12, 10


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("set")
    rows = []
    for kind in range(LEARNED + TESTED):
        for number in range(5):
            path = folder / f"{kind}-{number}.png"
            draw_picture(kind, number).save(path)
            rows.append(ImageRow(path, f"kind {kind}", "train" if kind < LEARNED else "test"))
    write_manifest(Manifest(tuple(rows)), folder / "manifest.csv")
    return folder / "manifest.csv"


def recipe(manifest: Path, **evaluation: Any) -> Any:
    return make_recipe(
        {
            "data": {"manifest": str(manifest), "validation_share": 0.25},
            "embedder": {"backbone": "small", "weights": "random", "dim": 16, "size": 32, "trainable": "all"},
            "loss": {"name": "triplet"},
            "batches": {"classes": 4, "per_class": 4},
            "schedule": {"epochs": 1},
            "evaluation": evaluation,
        }
    )


@pytest.fixture(scope="module")
def run(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return TrainingResult(folder, train(recipe(manifest), folder))


def test_a_run_keeps_a_calibration_beside_its_weights(run: TrainingResult) -> None:
    stored = read_calibration(run.folder / "best", tophit.load(run.folder).fingerprint())
    assert stored is not None
    assert stored.calibration.classes == TESTED + 3
    assert stored.learned_from.startswith("13 classes that training did not see, of the splits validation and test")
    assert json.loads((run.folder / "result.json").read_text())["calibration"] == stored.sentences()
    assert stored.sentences()[0] in run.sentences()


def test_an_index_of_the_run_has_it_too(run: TrainingResult, manifest: Path, tmp_path: Path) -> None:
    with tophit.index(manifest, run, out=tmp_path / "index") as catalogue:
        assert (tmp_path / "index" / "v1" / "embedder" / NAME).is_file()
        assert catalogue.calibration is not None
        assert catalogue.calibration.calibration.classes >= TESTED


def test_an_evaluation_calibrates_where_that_is_missing(run: TrainingResult) -> None:
    path = run.folder / "best" / NAME
    kept = path.read_text()
    assert tophit.evaluate(run).calibration == []
    path.unlink()
    found = tophit.evaluate(run)
    assert found.calibration[0].startswith("Chances are calibrated on 10 classes that training did not see")
    assert found.calibration[0] in found.sentences()
    assert any("of the unknown ones are told as unknown" in sentence for sentence in found.calibration)
    other = {**json.loads(kept), "fingerprint": "of other weights"}
    path.write_text(json.dumps(other))
    assert tophit.evaluate(run).calibration, "a calibration of other weights is made again"
    path.unlink()
    assert tophit.evaluate(run, split="all").calibration == [], "the model learned some of these"
    assert not path.exists()
    made = tophit.calibrate(run.folder)
    assert made.calibration.classes == TESTED + 3
    assert made.sentences() == run["calibration"], "the check of the run is that of the command"
    assert path.is_file()


def test_a_recipe_can_leave_it_out(manifest: Path, tmp_path: Path) -> None:
    result = train(recipe(manifest, calibrate=False), tmp_path / "run")
    assert "calibration" not in result
    assert not (tmp_path / "run" / "best" / NAME).exists()


def test_what_was_learned_is_refused(manifest: Path) -> None:
    learned = [ImageRow(manifest, "a", "train"), ImageRow(manifest, "a", "test")]
    with pytest.raises(UsageError, match="training did not see"):
        calibrate_vectors(np.eye(2, dtype=np.float32), learned, "")
    several = [ImageRow(manifest, "a|b", "test", kind="several", names=("a", "b"))] * 2
    with pytest.raises(TophitError, match="one label each"):
        calibrate_vectors(np.eye(2, dtype=np.float32), several, "")
