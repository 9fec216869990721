"""Schedules, optimizers, early stopping, averages, selection and logs, through recipes."""

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.test_train import lines, small_recipe
from torch import nn

import tophit
from tophit.errors import TophitError, UsageError
from tophit.losses import ProxyAnchorLoss
from tophit.models import build_embedder
from tophit.recipe import Recipe, make_recipe, read_recipe
from tophit.recipe.learning import Schedule
from tophit.reporting.runs import list_runs
from tophit.training import Run, train
from tophit.training.optimizer import WeightAverage, make_optimizer, rate_factor


def factors(steps: range, **fields: Any) -> list[float]:
    schedule = Schedule(epochs=10, **fields)
    return [rate_factor(schedule, step, 4) for step in steps]


def test_rates_follow_their_schedule() -> None:
    assert factors(range(0, 40, 8), decay="step", step_epochs=2, gamma=0.5) == [1, 0.5, 0.25, 0.125, 0.0625]
    assert factors(range(0, 40, 8), decay="multi-step", milestones=(4, 6), gamma=0.1) == pytest.approx(
        [1, 1, 0.1, 0.01, 0.01]
    )
    assert factors(range(6), decay="none", lr_warmup_steps=4) == [0.25, 0.5, 0.75, 1, 1, 1]
    assert factors(range(6), decay="none", lr_warmup_epochs=0.5) == [0.5, 1, 1, 1, 1, 1]
    assert factors(range(0, 41, 20), decay="cosine") == pytest.approx([1, 0.5, 0])


@pytest.mark.parametrize(("name", "kind"), [("adamw", "AdamW"), ("adam", "Adam"), ("sgd", "SGD")])
def test_optimizers_of_the_papers(name: str, kind: str) -> None:
    recipe = make_recipe(
        {"data": {"manifest": "x"}, "optimizer": {"name": name, "momentum": 0.8, "betas": [0.8, 0.99]}}
    )
    optimizer = make_optimizer(recipe, build_embedder("small", "random", dim=4), ProxyAnchorLoss(3, 4))
    assert type(optimizer).__name__ == kind
    assert optimizer.param_groups[0].get("momentum", 0.8) == 0.8
    assert optimizer.param_groups[0].get("betas", (0.8, 0.99)) == (0.8, 0.99)


def test_profs_has_the_betas_of_its_paper() -> None:
    assert read_recipe("profs/cub200", ["data.manifest=x"]).optimizer.betas == (0.9, 0.99)
    assert make_recipe({"data": {"manifest": "x"}}).optimizer.betas == (0.9, 0.999)
    with pytest.raises(UsageError, match=r"optimizer\.betas: Both betas must be at least 0 and below 1, got .*1\.0"):
        make_recipe({"data": {"manifest": "x"}, "optimizer": {"betas": [0.9, 1.0]}})


def test_an_average_is_that_of_its_definition_and_steps_aside() -> None:
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    average, expected = WeightAverage(net.parameters(), 0.9), net.weight.detach().clone()
    for _ in range(3):
        with torch.no_grad():
            net.weight.add_(torch.randn(2, 3))
        average.update()
        expected = 0.9 * expected + 0.1 * net.weight.detach()
    weights = net.weight.detach().clone()
    with average.in_place():
        torch.testing.assert_close(net.weight.detach(), expected)
    assert torch.equal(net.weight, weights)


def test_the_average_is_what_is_kept(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        pictures, data={"validation_share": 0}, optimizer={"ema": 0.5}, embedder={"trainable": "head"}
    )
    train(recipe, tmp_path / "run")
    state = Run(tmp_path / "run").load_checkpoint()
    assert state is not None
    kept = tophit.load(tmp_path / "run").state_dict()["head.weight"]
    assert torch.equal(kept, state["average"][0])
    assert not torch.equal(kept, state["embedder"]["head.weight"])


def test_patience_ends_a_run_early(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        pictures,
        embedder={"trainable": "head"},
        optimizer={"head": {"lr": 0.0}, "proxies": {"lr": 0.0}},
        schedule={"epochs": 30, "patience": 3},
    )
    result = train(recipe, tmp_path / "run")
    assert result["stopped_early"] == 4  # the first is the best, three are no better


def test_selection_on_test_classes_is_called_optimistic(pictures: Path, tmp_path: Path, tophit: Callable) -> None:
    recipe = small_recipe(pictures, evaluation={"select_on": "test"}, embedder={"trainable": "head"})
    result = train(recipe, tmp_path / "runs" / "a")
    assert result["optimistic"] == "the best epoch was chosen on the test classes"
    assert result["validation"] == {}
    assert any("test/MAP@R" in line for line in lines(tmp_path / "runs" / "a"))
    assert small_recipe(pictures).evaluation.select_on == "validation"
    shown = tophit("train", "--resume", tmp_path / "runs" / "a").stdout
    assert "Optimistic: the best epoch was chosen on the test classes." in shown
    listed = tophit("runs", tmp_path / "runs").stdout
    assert f"{100 * result['test']['recall@1']:.1f}*" in listed
    assert "finished" in listed


def test_runs_are_listed_with_their_state_and_best(pictures: Path, tmp_path: Path) -> None:
    result = train(small_recipe(pictures, embedder={"trainable": "head"}), tmp_path / "runs" / "a")
    train(small_recipe(pictures, embedder={"trainable": "head"}), tmp_path / "runs" / "deep" / "b")
    (tmp_path / "runs" / "deep" / "b" / "result.json").unlink()
    first, second = list_runs(tmp_path / "runs")
    assert (first["state"], first["test"], first["epoch"]) == ("finished", result["test"], 3)
    assert first["best"] == result["validation"]["MAP@R"]
    assert (second["state"], second["test"]) == ("stopped", {})
    with pytest.raises(UsageError, match="There is no folder"):
        list_runs(tmp_path / "nothing")


def test_a_loss_above_the_limit_stops_with_the_images(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, schedule={"stop_above": 0.0})
    with pytest.raises(TophitError) as error:
        train(recipe, tmp_path / "run")
    message = str(error.value)
    assert "at step 1;" in message
    assert "There is no checkpoint yet." in message
    named = message.split("The batch's images: ")[1].split(", ")
    assert len(named) == 6  # two classes are left to train on, with three images each
    assert all(Path(name).is_file() for name in named)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"memory": {"size": 8}}, r"memory.size: the loss proxy-anchor can't compare images"),
        ({"memory": {"size": 8}, "loss": {"name": "n-pair"}}, r"memory.size: the loss n-pair can't compare images"),
        (
            {"memory": {"size": 8}, "loss": {"name": "pnp"}, "method": {"name": "projection"}},
            r"memory.size: the method projection has no memory",
        ),
        (
            {"batches": {"chunk": 4}, "embedder": {"freeze_batch_norm": False}},
            r"batches.chunk: BatchNorm in training mode",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    pictures: Path, tmp_path: Path, sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        train(small_recipe(pictures, **sections), tmp_path / "run")


@pytest.mark.parametrize("loss", ["contrastive", "triplet", "margin", "lifted-structure", "pnp", "smooth-ap"])
def test_losses_that_compare_images_train_with_a_memory(pictures: Path, tmp_path: Path, loss: str) -> None:
    recipe = small_recipe(pictures, loss={"name": loss}, memory={"size": 16}, embedder={"trainable": "head"})
    train(recipe, tmp_path / "run")
    state = Run(tmp_path / "run").load_checkpoint()
    assert state is not None
    assert state["method"]["memory"]["embeddings"].shape == (16, 16)


def with_log(recipe: Recipe, *names: str) -> Recipe:
    return Recipe.model_validate({**recipe.model_dump(), "log": names})


def test_mlflow_and_wandb_get_the_numbers(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small fakes: what is called, with what."""
    calls: list[tuple[str, Any]] = []
    mlflow: Any = types.ModuleType("mlflow")
    mlflow.start_run = lambda run_id, run_name: types.SimpleNamespace(info=types.SimpleNamespace(run_id="id"))
    mlflow.log_params = lambda fields: calls.append(("params", fields))
    mlflow.log_metrics = lambda values, step: calls.append(("mlflow", (step, values)))
    mlflow.end_run = lambda: calls.append(("end", None))
    wandb: Any = types.ModuleType("wandb")
    wandb.init = lambda **fields: types.SimpleNamespace(
        log=lambda values, step: calls.append(("wandb", (step, values))), finish=lambda: calls.append(("finish", None))
    )
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    train(with_log(small_recipe(pictures, embedder={"trainable": "head"}), "mlflow", "wandb"), tmp_path / "run")
    losses = [line["loss"] for line in lines(tmp_path / "run") if "loss" in line]
    for name in ("mlflow", "wandb"):
        assert [values["loss"] for kind, (_, values) in numbers(calls, name) if "loss" in values] == losses
    assert dict(calls)["params"]["loss.name"] == "proxy-anchor"
    assert any("validation/MAP_at_R" in values for _, (_, values) in numbers(calls, "mlflow"))
    assert {"end", "finish"} <= {kind for kind, _ in calls}
    assert not (tmp_path / "run" / "tensorboard").exists()


def numbers(calls: list[tuple[str, Any]], kind: str) -> list[tuple[str, Any]]:
    return [call for call in calls if call[0] == kind]


def test_a_logger_that_is_missing_is_named(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match="log: wandb is not installed; pip install wandb"):
        train(with_log(small_recipe(pictures, embedder={"trainable": "head"}), "wandb"), tmp_path / "run")


def test_the_help_imports_neither_torch_nor_fabric() -> None:
    code = "import sys, tophit, tophit.cli; print([n for n in ('torch', 'lightning_fabric') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_loss_that_compares_images_needs_two_of_a_class(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, loss={"name": "triplet"}, batches={"classes": 4, "per_class": 1})
    with pytest.raises(UsageError, match=r"batches.per_class: the loss triplet compares images of one class"):
        train(recipe, tmp_path / "run")
