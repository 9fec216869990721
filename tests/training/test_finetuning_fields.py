"""Layer-wise rates, gradual unfreezing, stochastic depth, progressive sizes: what each field of a recipe does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.test_train import lines, small_recipe
from torch import nn

from tophit.errors import UsageError
from tophit.models.cut import stage_tensors
from tophit.training import train
from tophit.training.building import make_embedder
from tophit.training.learning import Learning
from tophit.training.optimizer import make_optimizer


@pytest.mark.parametrize(("trainable", "stages"), [("all", 4), ("last", 3)])
def test_each_stage_learns_at_a_rate_below_that_of_the_next(pictures: Path, trainable: str, stages: int) -> None:
    recipe = small_recipe(
        pictures,
        embedder={"trainable": trainable, "last": 3},
        optimizer={"layer_decay": 0.5, "backbone": {"lr": 8e-3}},
    )
    embedder, loss = make_embedder(recipe), nn.Linear(2, 2)
    groups = make_optimizer(recipe, embedder, loss).param_groups
    assert [group["lr"] for group in groups[:-2]] == [8e-3 * 0.5**i for i in reversed(range(stages))]
    for group, tensors in zip(groups[:-2], stage_tensors(embedder.backbone)[-stages:], strict=True):
        assert {id(p) for p in group["params"]} == {id(t) for t in tensors.values() if isinstance(t, nn.Parameter)}
    whole = make_optimizer(small_recipe(pictures), embedder, loss).param_groups
    assert [len(group["params"]) for group in whole] == [len(list(embedder.backbone.parameters())), 2, 2]


def learning_stages(learning: Learning, epoch: int) -> list[bool]:
    learning.begin_epoch(epoch)
    return [any(t.requires_grad for t in stage.values() if isinstance(t, nn.Parameter)) for stage in learning.stages]


@pytest.mark.parametrize(("trainable", "first"), [("all", 0), ("last", 1)])
def test_stages_join_from_the_last_to_the_first(pictures: Path, trainable: str, first: int) -> None:
    recipe = small_recipe(
        pictures,
        embedder={"trainable": trainable, "last": 3},
        schedule={"epochs": 20, "warmup_epochs": 1, "unfreeze_epochs": 2},
    )
    learning = Learning(recipe, make_embedder(recipe))
    expected = {0: 4, 1: 3, 2: 3, 3: 2, 4: 2, 5: 1, 7: 0, 19: 0}
    for epoch, begin in expected.items():
        assert learning_stages(learning, epoch) == [stage >= max(begin, first) for stage in range(4)]


def test_frozen_stages_keep_their_batch_norm_while_others_learn_it(pictures: Path) -> None:
    recipe = small_recipe(
        pictures, embedder={"freeze_batch_norm": False}, schedule={"warmup_epochs": 0, "unfreeze_epochs": 1}
    )
    embedder = make_embedder(recipe)
    learning = Learning(recipe, embedder)
    norms = [module for module in embedder.backbone.modules() if isinstance(module, nn.BatchNorm2d)]
    learning.begin_epoch(1)
    assert [norm.training for norm in norms] == [False, False, True, True]
    learning.begin_epoch(3)
    assert all(norm.training for norm in norms)


def test_unfrozen_stages_change_in_their_epochs_only(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(
        pictures, data={"validation_share": 0}, schedule={"epochs": 2, "warmup_epochs": 0, "unfreeze_epochs": 1}
    )
    train(recipe, tmp_path / "run")
    torch.manual_seed(recipe.seed)
    before = stage_tensors(make_embedder(recipe).backbone)
    after = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["embedder"]
    changed = [any(not torch.equal(after[f"backbone.{n}"], t) for n, t in stage.items()) for stage in before]
    assert changed == [False, False, True, True]


def test_sizes_grow_over_the_epochs_and_evaluation_keeps_its_own(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, int]] = []
    from tophit.models.embedder import Embedder

    real = Embedder.features

    def watched(self: Embedder, images: torch.Tensor) -> torch.Tensor:
        seen.append((self.training, images.shape[2]))
        return real(self, images)

    monkeypatch.setattr(Embedder, "features", watched)
    train(small_recipe(pictures, schedule={"epochs": 5, "sizes": [16, 24, 32]}), tmp_path / "run")
    steps = len([line for line in lines(tmp_path / "run") if "loss" in line]) // 5
    assert [size for training, size in seen if training] == [
        size for size in (16, 16, 24, 24, 32) for _ in range(steps)
    ]
    assert {size for training, size in seen if not training} == {32}


def test_stochastic_depth_changes_training_but_not_the_resumed_result(pictures: Path, tmp_path: Path) -> None:
    embedder = {"backbone": "resnet50", "size": 32, "trainable": "last", "last": 2, "stochastic_depth": 0.5}
    short = {"epochs": 1, "warmup_epochs": 0}
    for name, rate in (("one", 0.5), ("same", 0.5), ("none", 0.0)):
        fields = {**embedder, "stochastic_depth": rate}
        train(small_recipe(pictures, embedder=fields, schedule=short, evaluation={"test": False}), tmp_path / name)
    one, same, none = ([x["loss"] for x in lines(tmp_path / n) if "loss" in x] for n in ("one", "same", "none"))
    assert one == same
    assert one != none


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"schedule": {"sizes": [16, 32]}, "embedder": {"trainable": "last"}},
            r"schedule\.sizes: with trainable: last",
        ),
        (
            {"schedule": {"sizes": [16, 32]}, "embedder": {"trainable": "head"}},
            r"schedule\.sizes: with trainable: head",
        ),
        ({"schedule": {"sizes": [16, 20, 24, 32]}}, r"schedule\.sizes: 4 sizes need .* schedule\.epochs is 3"),
        ({"schedule": {"sizes": [16, 64]}}, r"schedule\.sizes: 64 is more than the 32 pixels that evaluation uses"),
        ({"embedder": {"stochastic_depth": 0.2}}, r"stochastic_depth: 'small' has no residual blocks"),
        ({"embedder": {"stochastic_depth": 0.2, "trainable": "head"}}, r"stochastic_depth: with trainable: head"),
    ],
)
def test_what_cannot_work_is_refused_before_training(
    pictures: Path, tmp_path: Path, sections: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        train(small_recipe(pictures, **sections), tmp_path / "run")


@pytest.mark.parametrize(
    ("section", "fields", "message"),
    [
        ("optimizer", {"layer_decay": 0}, r"optimizer\.layer_decay: .*greater than 0"),
        ("augment", {"jitter": 1.0}, r"augment\.jitter: .*less than 1"),
        ("augment", {"erase": 1.5}, r"augment\.erase: .*less than or equal to 1"),
        ("augment", {"views": -1}, r"augment\.views: .*greater than or equal to 0"),
        ("schedule", {"sizes": [4]}, r"schedule\.sizes.*greater than or equal to 8"),
        ("schedule", {"unfreeze_epochs": -1}, r"schedule\.unfreeze_epochs: .*greater than or equal to 0"),
    ],
)
def test_values_out_of_range_are_refused(pictures: Path, section: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        small_recipe(pictures, **{section: fields})
