"""How weights are updated: the optimizer of a recipe, its learning rates, and a moving average of the weights."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from tophit.models.cut import stage_tensors
from tophit.models.embedder import Embedder
from tophit.recipe import Recipe
from tophit.recipe.learning import Schedule
from tophit.training.learning import frozen_count, learned_weights


def make_optimizer(recipe: Recipe, embedder: Embedder, loss: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer with the groups backbone (what learns of it), head and the loss's own parameters."""
    head = nn.ModuleList([embedder.head, embedder.pooling])  # a pooling's learned power uses the head's rate
    sections = [(head, recipe.optimizer.head), (loss, recipe.optimizer.proxies)]
    groups: list[dict[str, Any]] = _backbone_groups(recipe, embedder)
    groups += [
        {"params": list(module.parameters()), "lr": settings.lr, "weight_decay": settings.weight_decay}
        for module, settings in sections
    ]
    # fused: one pass over the weights instead of one for each operation; a fourth of the time of an update on a CPU
    if recipe.optimizer.name == "sgd":
        return torch.optim.SGD(groups, momentum=recipe.optimizer.momentum, fused=True)
    kind = torch.optim.Adam if recipe.optimizer.name == "adam" else torch.optim.AdamW
    return kind(groups, betas=recipe.optimizer.betas, eps=recipe.optimizer.eps, fused=True)


def _backbone_groups(recipe: Recipe, embedder: Embedder) -> list[dict[str, Any]]:
    """Return one group of the backbone's weights that learn, or one for each stage if their rates differ."""
    if recipe.embedder.trainable == "head":
        return []
    settings, decay = recipe.optimizer.backbone, recipe.optimizer.layer_decay
    stages = stage_tensors(embedder.backbone)[frozen_count(recipe, embedder) :]
    owner = {id(tensor): number for number, stage in enumerate(stages) for tensor in stage.values()}
    learned = [weights for weights in learned_weights(embedder) if id(weights) in owner]
    if decay == 1:
        return [{"params": learned, "lr": settings.lr, "weight_decay": settings.weight_decay}]
    return [
        {
            "params": [weights for weights in learned if owner[id(weights)] == number],
            "lr": settings.lr * decay ** (len(stages) - 1 - number),
            "weight_decay": settings.weight_decay,
        }
        for number in range(len(stages))
    ]


def learning_rate_factor(decay: str, progress: float) -> float:
    """Return the factor on every learning rate after a share of all steps: 1 to 0 along a cosine, or always 1."""
    return 0.5 * (1 + math.cos(math.pi * progress)) if decay == "cosine" else 1.0


def rate_factor(schedule: Schedule, step: int, steps_per_epoch: int) -> float:
    """Return the factor on every learning rate at a step, from 0.

    During the W steps of warm-up it is multiplied by (step + 1) / W.
    """
    epoch = step // steps_per_epoch
    if schedule.decay == "step":
        factor = schedule.gamma ** (epoch // schedule.step_epochs)
    elif schedule.decay == "multi-step":
        factor = schedule.gamma ** sum(epoch >= milestone for milestone in schedule.milestones)
    else:
        factor = learning_rate_factor(schedule.decay, step / (schedule.epochs * steps_per_epoch))
    warmup = max(schedule.lr_warmup_steps, round(schedule.lr_warmup_epochs * steps_per_epoch))
    return factor * (step + 1) / warmup if step < warmup else factor


class WeightAverage:
    """A moving average of the weights, which often retrieves better than the weights themselves.

    Keeps ``decay`` of the average and takes the rest from the weights at each ``update``.

    Buffers, such as BatchNorm's statistics, are not averaged: those of the network are used.
    """

    def __init__(self, weights: Iterable[torch.Tensor], decay: float) -> None:
        self.decay = decay
        self._weights = list(weights)
        self.average = [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the current weights."""
        torch._foreach_lerp_(self.average, self._weights, 1 - self.decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average into the weights' place, for evaluating and saving, and restore the weights afterwards."""
        weights = [weight.detach().clone() for weight in self._weights]
        self._fill(self.average)
        try:
            yield
        finally:
            self._fill(weights)

    def state_dict(self) -> list[torch.Tensor]:
        """Return the average."""
        return self.average

    def load_state_dict(self, state: list[torch.Tensor]) -> None:
        """Restore what ``state_dict`` returned."""
        self.average = [kept.to(weight.device) for kept, weight in zip(state, self._weights, strict=True)]

    @torch.no_grad()
    def _fill(self, values: list[torch.Tensor]) -> None:
        torch._foreach_copy_(self._weights, values)  # pyright: ignore[reportPrivateImportUsage]
