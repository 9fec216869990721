"""The generation method by recipe: its fields, a run and its log, resuming, and what a run leaves behind."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.training.test_resume import ONE_THREAD, assert_same_run, start, wait_for_steps

import tophit
from tophit.errors import Interrupted, TophitError, UsageError
from tophit.losses import NPairLoss, TripletLoss
from tophit.methods import GenerationMethod, GenerationSettings, TrainingBatch
from tophit.progress import View
from tophit.recipe import make_recipe, recipe_fields
from tophit.training import resume, train
from tophit.training.loop import _Training
from tophit.training.run import Run

FIELDS = {
    "embedder": {"backbone": "small", "weights": "random", "dim": 16, "size": 32, "trainable": "all"},
    "loss": "triplet",
    "method": {"name": "generation", "discriminator_width": 32, "generator_width": 16, "buffer_steps": 2},
    "batches": {"classes": 3, "per_class": 3},
    "optimizer": {"backbone": {"lr": 3e-3}, "head": {"lr": 3e-3}},
    "schedule": {"epochs": 4, "warmup_epochs": 1},
    "evaluation": {"every": 2},
}


def recipe_with(pictures: Path | str = "x.csv", **sections: Any):
    return make_recipe({**FIELDS, "data": {"manifest": str(pictures), "validation_share": 0.25}, **sections})


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_the_recipes_defaults_are_the_methods():
    section = recipe_with(method="generation").method
    fields = section.model_dump(exclude={"name", "hard_loss"})
    assert GenerationSettings(**fields) == GenerationSettings()
    documented = {path for path, *_ in recipe_fields()}
    assert {f"method.{name} (generation)" for name in [*fields, "hard_loss"]} <= documented


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "generation", "mu": 0.5}, r"method\.mu: .*2 eta \+ mu must be at most 1.* got 0\.5\."),
        ({"name": "generation", "etta": 0.5}, r"method\.etta: unknown key\. Did you mean 'eta'\?"),
        (
            {"name": "generation", "hard_loss": "npair"},
            r"method\.hard_loss: unknown value 'npair'\. Did you mean 'n-pair'",
        ),
        ({"name": "generation", "pretrain_epochs": -1}, r"method\.pretrain_epochs: Input should be greater"),
    ],
)
def test_mistakes_are_named(method, message):
    with pytest.raises(UsageError, match=message):
        recipe_with(method=method)


def method_of(pictures: Path, tmp_path: Path, **sections: Any) -> GenerationMethod:
    training = _Training(Run(tmp_path / "run"), recipe_with(pictures, **sections), View())
    training.log.close()
    method = training.method
    assert isinstance(method, GenerationMethod)
    return method


def test_fields_reach_the_method(pictures: Path, tmp_path: Path):
    section = {"name": "generation", "phi": 0.2, "normalize_d2": False, "hard_loss": "n-pair", "discriminator_lr": 0.5}
    method = method_of(pictures, tmp_path, method=section, miner="semi-hard", loss={"name": "triplet", "margin": 0.1})
    assert (method.settings.phi, method.settings.normalize_d2) == (0.2, False)
    assert isinstance(method.loss, TripletLoss)
    assert method.loss.margin == 0.1
    assert isinstance(method.hard_loss, NPairLoss)
    assert method.miner is not None
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in method.optimizers]
    # backbone, head, losses, classifier; then D and G of both stages: 100 times the embedder's rate, or as given
    assert rates == [[3e-3, 3e-3, 1e-2, pytest.approx(0.3)], [0.5], [pytest.approx(0.3)], [0.5], [pytest.approx(0.3)]]
    assert method.networks.d2[-1].out_features == method.classes + 1


def test_the_paper_rates_follow_from_its_ratios(pictures: Path, tmp_path: Path):
    """ERRATA 004.18: the classifier learns 100 times as fast as the embedder, whatever that rate is."""
    for lr in (1e-5, 3e-5):
        method = method_of(pictures, tmp_path / str(lr), optimizer={"backbone": {"lr": lr}, "head": {"lr": lr}})
        rates = [optimizer.param_groups[-1]["lr"] for optimizer in method.optimizers]
        assert rates == pytest.approx([100 * lr, 10 * lr, 100 * lr, 10 * lr, 100 * lr])  # classifier, D1, G1, D2, G2


def test_uniform_triplets_are_those_that_generation_starts_from(pictures: Path, tmp_path: Path):
    """With random mining, the original term and the generation use the same triplets (Algorithm 1, lines 3 to 5)."""
    steps = {}
    for miner in ("uniform", "none", "soft-hard"):
        method = method_of(pictures, tmp_path / miner, miner=miner)
        labels = torch.arange(3).repeat_interleave(3)
        torch.manual_seed(0)
        steps[miner] = method.step(TrainingBatch(torch.randn(9, 3, 32, 32), labels, torch.arange(9)))
    assert steps["uniform"] == steps["none"]
    assert steps["soft-hard"]["org"] != steps["none"]["org"]


def test_a_loss_without_triplets_is_refused(pictures: Path, tmp_path: Path):
    with pytest.raises(
        UsageError, match=r"loss\.name: the method generation needs .* use one of contrastive, .*triplet"
    ):
        method_of(pictures, tmp_path, loss="proxy-anchor")


def test_a_run_logs_every_part_and_its_embedder_holds_no_generator(pictures: Path, tmp_path: Path):
    result = train(recipe_with(pictures), tmp_path / "run")
    steps = [line for line in lines(tmp_path / "run") if "loss" in line]
    assert len(steps) == result["steps"]
    pretraining = [line for line in steps if line["epoch"] == 1]
    generated = [line for line in steps if line["epoch"] > 1]
    parts = {"LD1", "LG1", "LD2", "LG2", "class1", "adv1", "rec1", "art", "class2", "adv2", "rec2", "org", "hard"}
    others = {"class_F", "w_org", "w_hard", "tau_r", "dt", "kept1", "kept2", "diversity", "collapsed"}
    assert pretraining
    assert not any(parts & set(line) - {"org"} for line in pretraining)
    for line in generated:
        assert parts | others <= set(line)
        assert all(math.isfinite(line[name]) for name in parts | others)
        assert 0 <= line["kept2"] <= 1
    assert generated[0]["dt"] > 0
    saved = load_file(tmp_path / "run" / "best" / "weights.safetensors")
    assert {name.split(".")[0] for name in saved} == {"backbone", "head"}
    embedder = tophit.load(tmp_path / "run")
    assert set(embedder.state_dict()) == set(saved)
    assert embedder.encode(next(pictures.rglob("*.png"))).shape == (1, 16)
    checkpoint = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["method"]
    assert {name.split(".")[0] for name in checkpoint["networks"]} == {"classifier", "g1", "d1", "g2", "d2"}
    assert set(checkpoint["optimizers"]) == {"f", "d1", "g1", "d2", "g2"}


@pytest.mark.parametrize("trainable", ["all", "head"])
def test_stopped_in_the_middle_of_an_epoch_it_continues_bit_for_bit(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainable: str
):
    """Stopped after each of several steps in turn: in pre-training, at an epoch's end, and in the middle of one."""
    embedder = {**FIELDS["embedder"], "trainable": trainable}  # type: ignore[dict-item]
    recipe = recipe_with(pictures, embedder=embedder, checkpoint={"minutes": 0})
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    train(recipe, whole)
    begin = lambda: train(recipe, parted)  # noqa: E731
    for stop_after in (1, 2, 3, 5):
        learn = _Training._learn_step

        def counted(self, batch, learn=learn, stop_after=stop_after):
            if self.position.step >= stop_after:
                raise KeyboardInterrupt
            learn(self, batch)

        with monkeypatch.context() as patch:
            patch.setattr(_Training, "_learn_step", counted)
            with pytest.raises(Interrupted):
                begin()
        begin = lambda: resume(parted)  # noqa: E731
        steps = torch.load(parted / "checkpoint.pt", weights_only=True)["position"]["step"]
        assert steps == stop_after
    resume(parted)
    assert_same_run(whole, parted)


def test_killed_and_resumed_it_ends_with_the_same_weights(pictures: Path, tmp_path: Path, tophit: Callable):
    import signal

    path = tmp_path / "recipe.yaml"
    fields = recipe_with(pictures, schedule={"epochs": 12}, checkpoint={"minutes": 0.02 / 60})
    path.write_text(fields.to_yaml())
    tophit("train", path, "--run", tmp_path / "whole", **ONE_THREAD)
    process = start(path, "--run", tmp_path / "killed")
    wait_for_steps(process, tmp_path / "killed", 7)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "killed" / "result.json").exists()
    tophit("train", "--resume", tmp_path / "killed", **ONE_THREAD)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_a_part_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    step = GenerationMethod.step

    def breaking(self, batch):
        if self.epoch == 2:
            with torch.no_grad():
                self.networks.d2[0].weight.fill_(math.nan)
        return step(self, batch)

    monkeypatch.setattr(GenerationMethod, "step", breaking)
    with pytest.raises(TophitError) as error:
        train(recipe_with(pictures, checkpoint={"minutes": 0}), tmp_path / "run")
    taken = len(lines(tmp_path / "run")) - 1  # one line is an evaluation
    assert str(error.value).startswith(
        f"Step {taken + 1} was not taken. In the generation method the loss of the second discriminator (Eq. 23) "
        f"became infinite or not a number. The last good checkpoint is in {tmp_path / 'run'}. "
        f"The batch's images: {pictures}/class "
    )
    checkpoint = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert checkpoint["position"]["step"] == taken
    assert all(value.isfinite().all() for value in checkpoint["method"]["networks"].values())


def test_collapse_reaches_the_user_and_the_log(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from tophit.methods import generation

    monkeypatch.setattr(generation, "COLLAPSED", math.inf)  # everything counts as collapsed

    class Notes(View):
        def __init__(self) -> None:
            self.said: list[str] = []

        def note(self, message: str) -> None:
            self.said.append(message)

    view = Notes()
    train(recipe_with(pictures, schedule={"epochs": 15}), tmp_path / "run", view)
    assert sum("Generation has collapsed" in said for said in view.said) == 1
    assert sum("warning" in line for line in lines(tmp_path / "run")) == 1
