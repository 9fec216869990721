"""What a run keeps: the backbone where training hurts, what was trained where it helps, and what it says about it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import tophit
from tophit.cli import app
from tophit.data.folders import open_data
from tophit.data.manifest import ImageRow, Manifest
from tophit.data.splits import hold_out_validation, validation_folds
from tophit.errors import UsageError
from tophit.evaluation import retrieval_metrics
from tophit.models import build_embedder
from tophit.recipe import Recipe, make_recipe, read_recipe, recipe_names
from tophit.reporting.runs import list_runs, runs_table
from tophit.tables import as_text
from tophit.training import Run, resume, train
from tophit.training.keeping import BACKBONE, START, TRAINED, Candidates, choose, mixture
from tophit.training.run import data_of_run


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command in this process and return what it prints."""
    monkeypatch.setenv("COLUMNS", "250")

    def run(*arguments: object) -> str:
        return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False).stdout

    return run


LABELS = np.repeat(np.arange(60), 6)


def planted(path: Path, hurts: bool, own_validation: bool = True) -> Path:
    """Write features whose first coordinates tell the class of test and validation images.

    Training helps where they tell the class of training images too; it hurts where the last coordinates tell it.
    """
    generator = np.random.default_rng(0)
    split = np.where(LABELS < 40, "train", "test").astype("<U10")
    if own_validation:
        split[(LABELS >= 30) & (LABELS < 40)] = "validation"
    features = generator.normal(size=(len(LABELS), 16)) * np.where(np.arange(16) < 5, 1.0, 1.0 if hurts else 1.8)
    telling = np.where((split == "train") & hurts, 11, 0)[:, None] + np.arange(5)
    features[np.arange(len(LABELS))[:, None], telling] += 2 * generator.normal(size=(60, 5))[LABELS]
    np.savez(path, features=features.astype(np.float32), labels=LABELS, split=split)
    return path


def recipe_for(manifest: Path, **sections: dict[str, Any]) -> Recipe:
    fields: dict[str, Any] = {
        "data": {"manifest": str(manifest)},
        "embedder": {"dim": 16, "head_start": "whitened"},
        "batches": {"sampler": "random", "size": 40},
        "optimizer": {"head": {"lr": 0.02}, "proxies": {"lr": 0.1}},
        "schedule": {"epochs": 8},
        "log": [],
    }
    for name, values in sections.items():
        fields[name] = {**fields.get(name, {}), **values}
    return make_recipe(fields)


def test_where_training_hurts_the_backbone_is_kept_and_the_run_says_so(
    tmp_path: Path, command: Callable[..., str]
) -> None:
    data = planted(tmp_path / "x.npz", hurts=True)
    recipe = recipe_for(data, embedder={"head_start": "random"})
    result = train(recipe, tmp_path / "runs" / "a")
    assert result.kept == BACKBONE
    assert result["kept"]["values"][BACKBONE] > result["kept"]["values"][TRAINED] + 0.1
    assert result.metrics == pytest.approx(result.before)
    assert {name: gain.mean for name, gain in result.gain.items()} == {"MAP@R": 0, "recall@1": 0}
    features = np.load(data)["features"][LABELS >= 40]
    assert result.metrics["MAP@R"] == pytest.approx(retrieval_metrics(features, LABELS[LABELS >= 40])["MAP@R"])
    assert result.embedder.trained == "nothing"
    np.testing.assert_allclose(
        result.embedder.embed_arrays(features), features / np.linalg.norm(features, axis=1, keepdims=True), atol=1e-6
    )
    shown = command("train", "--resume", tmp_path / "runs" / "a")
    assert "Training did not help, so the untrained backbone was kept: MAP@R" in shown
    assert "On the 20 test classes nothing was gained" in shown
    (listed,) = list_runs(tmp_path / "runs")
    assert (listed["kept"], listed["gain"]["recall@1"]["mean"]) == (BACKBONE, 0)
    assert BACKBONE in command("runs", tmp_path / "runs")
    narrow = as_text(runs_table([listed], tmp_path / "runs", width=80)).splitlines()
    assert max(map(len, narrow)) <= 80
    assert narrow[1].split()[:3] == ["a", "proxy-anchor", f"{listed['epoch']}/{listed['epochs']}"]
    assert f"MAP@R {100 * listed['validation']:.1f}" in narrow[1]


def test_where_training_helps_the_trained_one_is_kept_with_its_gain(
    tmp_path: Path, command: Callable[..., str]
) -> None:
    data = planted(tmp_path / "x.npz", hurts=False)
    result = train(recipe_for(data), tmp_path / "run")
    assert "trained" in result.kept
    values = result["kept"]["values"]
    assert values[result.kept] == max(values.values()) > values[BACKBONE] + 0.02
    gain = result.gain["MAP@R"]
    assert gain.mean == pytest.approx(result.metrics["MAP@R"] - result.before["MAP@R"])
    assert 0 < gain.low < gain.mean < gain.high
    assert result.embedder.dim == 16
    assert result.folder == tmp_path / "run"
    shown = command("train", "--resume", tmp_path / "run")
    assert "Kept " in shown
    assert f"Against the untrained backbone on the 20 test classes: MAP@R {100 * gain.mean:+.1f} points" in shown


def test_the_untrained_embedder_is_measured_as_epoch_0(tmp_path: Path) -> None:
    train(recipe_for(planted(tmp_path / "x.npz", hurts=False)), tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    with np.load(tmp_path / "x.npz") as file:
        held_out = file["split"] == "validation"
        expected = retrieval_metrics(file["features"][held_out], file["labels"][held_out])["MAP@R"]
    assert (log[0]["epoch"], log[0]["backbone/MAP@R"]) == (0, pytest.approx(expected))
    assert log[0]["start/MAP@R"] >= log[0]["backbone/MAP@R"]


def test_keep_trained_keeps_the_best_epoch(tmp_path: Path) -> None:
    recipe = recipe_for(planted(tmp_path / "x.npz", hurts=True), evaluation={"keep": "trained"})
    result = train(recipe, tmp_path / "run")
    assert "kept" not in result
    assert result.kept == TRAINED
    assert result.gain["MAP@R"].mean < 0
    assert not (tmp_path / "run" / "start").exists()


def test_the_papers_and_old_runs_keep_what_was_trained(tmp_path: Path) -> None:
    for name in recipe_names():
        recipe = read_recipe(name, data="x")
        if recipe.paper.title:
            assert (recipe.evaluation.keep, recipe.embedder.head_start) == ("trained", "random"), name
    (tmp_path / "recipe.yaml").write_text("data: {manifest: x}\n")
    assert Run(tmp_path).recipe().evaluation.keep == "trained"
    assert read_recipe(tmp_path / "recipe.yaml").evaluation.keep == "best"
    assert read_recipe("head", data="x").embedder.head_start == "whitened"
    assert read_recipe(None, data="x").embedder.head_start == "whitened"


def values_of(**means: list[float]) -> Candidates:
    labels = np.asarray([f"class {i}" for i in range(len(next(iter(means.values()))))])
    return Candidates({name.replace("_", " "): np.asarray(each) for name, each in means.items()}, labels, {})


def test_the_best_on_validation_is_chosen_and_equals_are_decided_for_the_untrained() -> None:
    better = choose("MAP@R", values_of(backbone=[0.5] * 8, start=[0.4] * 8, half=[0.7] * 8, trained=[0.6] * 8))
    assert (better.kept, better.rival) == ("half", BACKBONE)
    assert better.p == pytest.approx(2 / 2**8, abs=0.005)  # only the two assignments of all signs are as extreme
    equal = choose("MAP@R", values_of(backbone=[1.0] * 8, start=[1.0] * 8, trained=[1.0] * 8))
    assert (equal.kept, equal.p) == (BACKBONE, 1.0)
    assert "can't tell them apart" in equal.sentence(3)
    worse = choose("MAP@R", values_of(backbone=[0.6] * 8, start=[0.5] * 8, trained=[0.1] * 8))
    assert worse.kept == BACKBONE
    assert "Training did not help" in worse.sentence(3)


def test_a_higher_mean_that_is_mere_chance_is_no_reason_to_give_up_the_backbone() -> None:
    higher = [0.9, 0.1, 0.8, 0.2, 0.51]
    found = choose("MAP@R", values_of(backbone=[0.5] * 5, start=[0.5] * 5, trained=higher))
    assert np.mean(higher) > 0.5
    assert (found.kept, found.rival) == (BACKBONE, TRAINED)
    assert "Nothing shows that training helped, so the untrained backbone was kept" in found.sentence(3)


def test_two_classes_are_never_a_sure_choice() -> None:
    found = choose("MAP@R", values_of(backbone=[0.1, 0.1], start=[0.1, 0.1], trained=[1.0, 1.0]))
    assert found.kept == TRAINED
    assert found.p == pytest.approx(0.5, abs=0.02)
    assert "little more than a guess" in found.sentence(1)


def test_splits_are_pooled() -> None:
    one = values_of(backbone=[0.5, 0.5], start=[0.5, 0.5], trained=[0.6, 0.6])
    other = values_of(backbone=[0.5, 0.5], start=[0.5, 0.5], trained=[0.1, 0.1])
    assert choose("MAP@R", one).kept == TRAINED
    assert choose("MAP@R", one, [other]).kept == BACKBONE


def test_folds_hold_out_different_classes() -> None:
    rows = tuple(ImageRow(Path("x"), f"{label:02}", "train") for label in range(20))
    manifest = Manifest(rows)
    assert validation_folds(manifest, 0.1) == 10
    found = [set(hold_out_validation(manifest, 0.1, 3, fold).where("validation").labels) for fold in range(10)]
    assert all(len(each) == 2 for each in found)
    assert set().union(*found) == set(manifest.labels)
    with pytest.raises(UsageError, match=r"data\.validation_fold: .* has only 10 \(0 to 9\), not 10"):
        hold_out_validation(manifest, 0.1, 3, 10)
    listed = Manifest(rows[::-1])
    second = hold_out_validation(listed, 0.1, 3, 1, "listed").where("validation")
    assert sorted(second.labels) == ["16", "17"]  # neighbours, in the order of the rows and not of the names
    shifted = [set(hold_out_validation(listed, 0.1, 3, fold, "listed").where("validation").labels) for fold in (10, 19)]
    assert shifted == [{"18", "17"}, {"00", "19"}]  # half a fold further, around the list
    with pytest.raises(UsageError, match=r"has only 20 \(0 to 19\), not 20"):
        hold_out_validation(listed, 0.1, 3, 20, "listed")
    assert validation_folds(Manifest(rows[:3]), 0.1) == 0
    given = Manifest((*rows, ImageRow(Path("x"), "v", "validation")))
    assert validation_folds(given, 0.1) == 1


def test_few_validation_classes_are_repeated_over_splits(tmp_path: Path) -> None:
    """The choice is that of all splits together, and a split's files do not stay."""
    data = planted(tmp_path / "x.npz", hurts=False, own_validation=False)
    result = train(recipe_for(data, schedule={"epochs": 3}), tmp_path / "run")
    assert (result["kept"]["splits"], result["kept"]["classes"]) == (5, 20)
    found = [Candidates.read(tmp_path / "run" / "candidates.npz")]
    found += [Candidates.read(Run(tmp_path / "run").split(fold).candidates_path) for fold in range(1, 5)]
    assert len({label for each in found for label in each.labels.tolist()}) == 20
    pooled = np.concatenate([each.values[TRAINED] for each in found])
    assert result["kept"]["values"][TRAINED] == pytest.approx(pooled.mean())
    by_epoch = [np.mean([each.epochs[epoch] for each in found]) for epoch in (1, 2, 3)]
    assert result["validation"]["MAP@R"] == pytest.approx(max(by_epoch))
    assert result["best_epoch"] == 3 - int(np.argmax(by_epoch[::-1]))
    assert [run["run"] for run in list_runs(tmp_path)] == [str(tmp_path / "run")]
    fold = Run(tmp_path / "run").split(1)
    opened = data_of_run(str(fold.folder), str(data))
    assert set(opened.where("validation").labels) == set(found[1].labels.tolist())
    one = train(recipe_for(data, schedule={"epochs": 3}, evaluation={"splits": 1}), tmp_path / "one")
    assert (one["kept"]["splits"], one["kept"]["classes"]) == (1, 4)


def test_enough_validation_classes_are_not_repeated(tmp_path: Path) -> None:
    data = planted(tmp_path / "x.npz", hurts=False, own_validation=False)
    with np.load(data) as file:
        labels = np.repeat(np.arange(60), 6)
        np.savez(data, features=file["features"], labels=labels, split=np.where(labels < 50, "train", "test"))
    recipe = recipe_for(data, data={"manifest": str(data), "validation_share": 0.4}, schedule={"epochs": 1})
    assert train(recipe, tmp_path / "run")["kept"]["splits"] == 1


class Killed(BaseException):
    """Ends a run at once, as a kill does: nothing catches it."""


@pytest.mark.parametrize("saves", [2, 9, 12])
def test_a_killed_run_keeps_the_same(saves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in a split, in training, and after the best epoch was set apart."""
    data = planted(tmp_path / "x.npz", hurts=False, own_validation=False)
    recipe = recipe_for(data, schedule={"epochs": 3}, evaluation={"splits": 3})
    whole = train(recipe, tmp_path / "whole")
    left = iter(range(saves - 1, -1, -1))
    real = Run.save_checkpoint

    def save(run: Run, state: dict[str, Any], keep: int = 1) -> None:
        real(run, state, keep)
        if next(left) == 0:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Run, "save_checkpoint", save)
        with pytest.raises(Killed):
            train(recipe, tmp_path / "killed")
    result = resume(tmp_path / "killed")
    assert {**result, "seconds": 0} == {**whole, "seconds": 0}
    one, other = (load_file(tmp_path / name / "best" / "weights.safetensors") for name in ("whole", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_mixture_lies_on_the_line_and_leaves_counts_alone() -> None:
    torch.manual_seed(0)
    start, end, into = (build_embedder("small", "random", dim=4) for _ in range(3))
    count = next(name for name in end.state_dict() if name.endswith("num_batches_tracked"))
    end.state_dict()[count].fill_(7)
    end.trained = "all"
    mixed = mixture(start, end, 0.25, into)
    first, last = start.state_dict(), end.state_dict()
    for name, value in mixed.state_dict().items():
        expected = last[name] if name.endswith("tracked") else 0.75 * first[name] + 0.25 * last[name]
        torch.testing.assert_close(value, expected)
    assert mixed.trained == "all"


def test_a_whole_network_that_training_spoils_is_given_back(pictures: Path, tmp_path: Path) -> None:
    """By a learning rate that destroys it; with weights from a file, so there is something to keep."""
    torch.manual_seed(1)
    start = build_embedder("small", "random", size=32)
    save_file(
        {name: value.contiguous() for name, value in start.backbone.state_dict().items()},
        tmp_path / "weights.safetensors",
    )
    recipe = make_recipe(
        {
            "data": {"manifest": str(pictures), "validation_share": 0.5},
            "embedder": {
                "backbone": "small",
                "weights": str(tmp_path / "weights.safetensors"),
                "dim": 16,
                "size": 32,
                "trainable": "all",
                "head_start": "pca",
            },
            "batches": {"sampler": "random", "size": 12},
            "optimizer": {"backbone": {"lr": 3.0}, "head": {"lr": 3.0}},
            "schedule": {"epochs": 2, "warmup_epochs": 0},
            "log": [],
        }
    )
    result = train(recipe, tmp_path / "run")
    assert result.kept in (BACKBONE, START)
    kept = tophit.load(tmp_path / "run").state_dict()
    for name, value in start.state_dict().items():
        torch.testing.assert_close(kept[name], value)
    assert tophit.load(tmp_path / "run" / "trained").trained == "all"
    assert (tmp_path / "run" / "trained" / "proxies.safetensors").is_file()
    assert not (tmp_path / "run" / "best" / "proxies.safetensors").exists()
    test = open_data(str(pictures)).where("test")
    assert result.embedder.encode([row.path for row in test.rows]).shape[0] == len(test)
