"""Runs on hierarchies and on images with several labels: from the manifest to the metrics, resumed, and refused."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.training.test_distributed_run import RECIPE, assert_same_runs
from tests.training.test_distributed_run import run as torchrun
from tests.training.test_resume import ONE_THREAD, assert_same_run, start, wait_for_steps
from typer.testing import CliRunner

import tophit
from tophit.cli import app
from tophit.errors import UsageError
from tophit.recipe import make_recipe
from tophit.training import train

COLOURS = ("red", "green", "blue")


def write_table(pictures: Path, folder: Path, column: str) -> Path:
    """Write a manifest of 8 classes in 2 families, or with several labels: the class and a colour it shares."""
    path = folder / "images.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", column, "split", "id"])
        for kind in range(8):
            label = f"family {kind % 2}/class {kind}" if column == "label_path" else f"class {kind};{COLOURS[kind % 3]}"
            for number in range(6):
                split = "test" if kind >= 6 or (column == "labels" and number >= 4) else "train"
                image = f"image{6 * kind + number}"
                table.writerow([pictures / f"class {kind}" / f"{number}.png", label, split, image])
    return path


def fields(manifest: Path, **sections: Any) -> dict[str, Any]:
    return {
        "data": {"manifest": str(manifest), "validation_share": 0.34},
        "embedder": {"backbone": "small", "weights": "random", "dim": 16, "size": 32},
        "batches": {"classes": 4, "per_class": 3},
        "schedule": {"epochs": 10},
        "checkpoint": {"minutes": 0},
        **sections,
    }


HAPPIER: dict[str, Any] = {
    "loss": "happier",
    "batches": {"sampler": "siblings", "classes": 4, "per_class": 3, "families": 2},
    "evaluation": {"metric": "H-AP"},
}


def test_a_hierarchy_is_learned_by_all_its_levels_and_measured_with_intervals(pictures: Path, tmp_path: Path) -> None:
    table = write_table(pictures, tmp_path, "label_path")
    result = train(make_recipe(fields(table, **HAPPIER)), tmp_path / "run")
    log = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    losses = [line["loss"] for line in log if "loss" in line]
    assert losses[-1] < losses[0]
    assert 0 < result["test"]["H-AP"] <= 1
    found = tophit.evaluate(tmp_path / "run")
    assert {"H-AP", "ASI", "graded-ndcg@10", "level1-recall@1"} <= set(found.metrics)
    low, high = found.metrics.intervals["H-AP"]
    assert low <= found.metrics["H-AP"] <= high
    assert "levels" in found.relevance


@pytest.mark.parametrize("loss", ["proxy-anchor", "smooth-ap", "contrastive"])
def test_images_with_several_labels_are_learned_and_found_by_any_of_them(
    pictures: Path, tmp_path: Path, loss: str
) -> None:
    table = write_table(pictures, tmp_path, "labels")
    train(make_recipe(fields(table, loss=loss)), tmp_path / "run")
    shared = tophit.evaluate(tmp_path / "run").metrics["recall@1"]
    same = tophit.evaluate(tmp_path / "run", jaccard=1.0).metrics["recall@1"]
    assert 0 < same <= shared


def test_judgements_decide_what_is_right(pictures: Path, tmp_path: Path) -> None:
    table = write_table(pictures, tmp_path, "label_path")
    train(make_recipe(fields(table, **HAPPIER)), tmp_path / "run")
    qrels = tmp_path / "qrels.txt"
    names = [f"image{number}" for number in range(36, 42)]  # of class 6
    qrels.write_text("".join(f"{a} 0 {b} 2\n" for a in names[:3] for b in names if a != b))
    done = CliRunner().invoke(
        app, ["evaluate", str(tmp_path / "run"), "--data", str(table), "--judgements", str(qrels), "--json"]
    )
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert "judgements" in answer["relevance"]
    assert 0 < answer["metrics"]["graded-ndcg@10"] <= 1


@pytest.mark.parametrize(
    ("column", "sections", "words"),
    [
        ("labels", {"loss": "n-pair"}, "loss n-pair is not defined for several labels"),
        ("labels", {"loss": "triplet", "miner": "soft-hard"}, "the miner soft-hard compares one label"),
        ("labels", {"loss": "triplet", "method": "projection"}, "method projection needs one class for each image"),
        ("labels", HAPPIER, "siblings needs labels that are paths"),
    ],
)
def test_what_a_loss_cannot_take_is_refused_before_training(
    pictures: Path, tmp_path: Path, column: str, sections: dict[str, Any], words: str
) -> None:
    table = write_table(pictures, tmp_path, column)
    with pytest.raises(UsageError, match=words):
        train(make_recipe(fields(table, **sections)), tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


CASES = [pytest.param("label_path", HAPPIER, id="paths"), pytest.param("labels", {"loss": "proxy-anchor"}, id="sets")]


@pytest.mark.slow
@pytest.mark.parametrize(("column", "sections"), CASES)
def test_killed_and_resumed_it_ends_with_the_same_weights(
    pictures: Path, tmp_path: Path, tophit: Callable, column: str, sections: dict[str, Any]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(fields(write_table(pictures, tmp_path, column), **sections)))
    tophit("train", recipe, "--run", tmp_path / "whole", **ONE_THREAD)
    killed = tmp_path / "killed"
    process = start(recipe, "--run", killed)
    wait_for_steps(process, killed, 5)
    process.kill()
    process.communicate()
    tophit("train", "--resume", killed, **ONE_THREAD)
    assert_same_run(tmp_path / "whole", killed)


@pytest.mark.slow
@pytest.mark.parametrize(("column", "sections"), CASES)
def test_two_processes_agree_with_one(pictures: Path, tmp_path: Path, column: str, sections: dict[str, Any]) -> None:
    recipe = tmp_path / "recipe.yaml"
    data = {"manifest": str(write_table(pictures, tmp_path, column)), "validation_share": 0.34}
    recipe.write_text(yaml.safe_dump({**RECIPE, "data": data, "batches": {"classes": 4, "per_class": 3}, **sections}))
    for processes, name in ((1, "one"), (2, "two")):
        torchrun(processes, recipe, "--run", tmp_path / name)
    assert_same_runs(tmp_path / "one", tmp_path / "two")
