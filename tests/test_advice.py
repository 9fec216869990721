"""``tophit plan``: what it says of data, what it measures, and what it advises."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tophit import advice
from tophit.advice.rules import RULES, advised_choice, advised_size, rule_for
from tophit.advice.survey import Survey, survey
from tophit.advice.timing import Estimate, estimate
from tophit.cli import app
from tophit.data.folders import open_data
from tophit.recipe import Recipe, make_recipe, read_recipe
from tophit.training.run_rows import rows_of

SMALL = ["--backbone", "small", "--set", "embedder.weights=random", "--set", "embedder.size=32"]
SMALL += ["--set", "data.validation_share=0.5"]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command in this process and return what it prints."""
    monkeypatch.setenv("COLUMNS", "250")

    def run(*arguments: object) -> str:
        done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_a_plan_says_what_the_data_are_and_what_each_choice_takes(pictures: Path, command: Callable[..., str]) -> None:
    found = json.loads(command("plan", pictures, *SMALL, "--json"))
    assert found["data"]["images"] == {"training": 12, "validation": 12, "testing": 24}
    assert found["data"]["classes"] == {"training": 2, "validation": 2, "testing": 4}
    assert (found["data"]["width"], found["data"]["median_per_class"]) == (32, 6)
    measured = {(option["trainable"], option["size"]): option for option in found["options"]}
    assert set(measured) == {("head", 32), ("last", 32), ("all", 32)}
    for option in measured.values():
        parts = option["estimate"]["parts"]
        assert option["estimate"]["seconds"] == pytest.approx(sum(parts.values()))
        assert all(seconds >= 0 for seconds in parts.values())
        assert option["estimate"]["memory"] > 1e7
    assert "activations" in measured["last", 32]["estimate"]["parts"]
    shown = command("plan", pictures, *SMALL)
    assert "48 images: 12 of 2 classes for training" in shown
    assert "docs/benchmarks/ranking-losses.md" in shown
    assert f"tophit train head --data {pictures}" in shown


def advised(found: advice.Advice, data: Path) -> Recipe:
    words = found.command.split()
    return read_recipe("head", [words[i + 1] for i, word in enumerate(words) if word == "--set"], str(data))


def test_the_advised_command_is_a_valid_recipe(pictures: Path) -> None:
    found = advice.plan(str(pictures), "small", ["embedder.weights=random", "embedder.size=32"])
    recipe = advised(found, pictures)
    assert (recipe.loss.name, recipe.embedder.trainable) == (found.loss, found.trainable)


def test_features_allow_only_a_head(tmp_path: Path) -> None:
    labels = np.repeat(np.arange(12), 4)
    features = np.random.default_rng(0).normal(size=(48, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", features=features, labels=labels)
    found = advice.plan(str(tmp_path / "x.npz"))
    assert [option.trainable for option in found.options] == ["head"]
    assert (found.trainable, found.size, found.data.width) == ("head", None, None)
    recipe = advised(found, tmp_path / "x.npz")
    assert recipe.miner is not None
    assert (recipe.loss.name, recipe.miner.name) == (found.loss, found.miner) == ("margin", "balanced-hard")
    assert "margin with the miner balanced-hard: with few images per class" in " ".join(found.reasons)


def survey_of(median: float, width: int = 500, height: int = 400) -> Survey:
    return Survey({"training": 900}, {"training": 90}, 1, median, 60, width, height, 1000)


def test_the_objective_follows_the_images_per_class() -> None:
    for learns in ("head", "last", "all"):
        assert rule_for(survey_of(1), learns).loss == "proxy-anchor"
        assert rule_for(survey_of(59), learns).loss == "proxy-anchor"
    ranking = rule_for(survey_of(9), "last")
    assert (ranking.loss, ranking.miner) == ("smooth-ap", "")
    assert ranking.batches(survey_of(9)) == {"sampler": "balanced", "classes": 32, "per_class": 4}
    pairs = rule_for(survey_of(9), "head")
    assert (pairs.loss, pairs.miner) == ("margin", "balanced-hard")
    assert pairs.batches(survey_of(9)) == {"sampler": "balanced", "classes": 64, "per_class": 2}


def test_every_rule_names_a_page_that_is_there_and_its_numbers_are_on_it() -> None:
    root = Path(__file__).parent.parent
    for rule in RULES:
        page = (root / rule.page).read_text(encoding="utf-8")
        for number in re.findall(r"\d+\.\d", rule.reason):
            assert number in page, (number, rule.page)


def test_small_pictures_are_not_enlarged() -> None:
    assert advised_size(survey_of(9, 500, 400), 224)[0] == 224
    assert advised_size(survey_of(9, 70, 64), 224)[0] == 64
    assert advised_size(survey_of(9, 128, 128), 112)[0] == 112
    assert advised_size(replace(survey_of(9), width=None, height=None), 224)[0] == 224


def test_the_most_that_fits_into_half_an_hour_is_advised() -> None:
    assert advised_choice({"head": 10, "last": 100, "all": 1000})[0] == "all"
    assert advised_choice({"head": 10, "last": 100, "all": 10_000})[0] == "last"
    assert advised_choice({"head": 10, "last": 9000, "all": 10_000})[0] == "head"


def test_an_estimate_counts_epochs_splits_and_tests(tmp_path: Path) -> None:
    """Twice the epochs are twice the training; what is not done costs nothing."""
    labels = np.repeat(np.arange(60), 6)
    features = np.random.default_rng(0).normal(size=(360, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", features=features, labels=labels)

    def found(**sections: Any) -> Estimate:
        return estimate(make_recipe({"data": {"manifest": str(tmp_path / "x.npz")}, **sections}))

    once = found(evaluation={"splits": 1}, schedule={"epochs": 10})
    assert once.parts["training"] == pytest.approx(10 * once.epoch)
    split = found(evaluation={"splits": 3}, schedule={"epochs": 10})
    assert split.parts["training"] == pytest.approx(30 * split.epoch)
    assert found(evaluation={"test": False}).parts["test"] == 0
    assert once.parts["test"] > 0


def test_pictures_that_can_not_be_opened_are_left_out_of_a_survey(tmp_path: Path, pictures: Path) -> None:
    recipe = make_recipe({"data": {"manifest": str(pictures)}})
    assert survey(rows_of(recipe)).height == 32
    for kind in range(4):
        (tmp_path / f"class {kind}").mkdir()
        for number in range(3):
            (tmp_path / f"class {kind}" / f"{number}.png").write_text("text")
    assert len(open_data(str(tmp_path))) == 12
    assert survey(rows_of(make_recipe({"data": {"manifest": str(tmp_path)}}))).width is None


def test_training_begins_with_the_data_and_the_time(
    pictures: Path, tmp_path: Path, command: Callable[..., str]
) -> None:
    settings = ["embedder.backbone=small", "embedder.weights=random", "embedder.size=32", "schedule.epochs=1"]
    options = [word for setting in settings for word in ("--set", setting)]
    shown = command("train", "head", "--data", pictures, "--run", tmp_path / "run", *options)
    assert shown.index("48 images:") < shown.index("on this machine") < shown.index("epoch 1:")


def test_classes_of_one_size_are_said_in_one_number() -> None:
    same = Survey({"training": 90}, {"training": 15}, 6, 6, 6, 500, 400, 1000)
    assert same.sentences()[1] == "Training images per class: 6."
    assert survey_of(9).sentences()[1] == "Training images per class: 1 to 60, median 9."
