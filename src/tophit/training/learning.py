"""Which weights of an embedder learn in a run, and from which epoch on."""

from typing import Literal

import torch
from torch import nn

from tophit.models.cut import frozen_stages, stage_tensors
from tophit.models.embedder import Embedder
from tophit.models.lora import add_adapters, is_adapter
from tophit.recipe import Recipe


def frozen_count(recipe: Recipe, embedder: Embedder) -> int:
    """Return how many first stages of the backbone never learn in a run."""
    if recipe.embedder.trainable in ("all", "lora"):
        return 0
    if recipe.embedder.trainable == "last":
        return frozen_stages(embedder.backbone, recipe.embedder.last)
    return len(embedder.backbone.stages())


def trained_part(recipe: Recipe) -> Literal["head", "last", "all"]:
    """Return what an embedder says was trained of it: adapters are in all layers once they are merged."""
    return "all" if recipe.embedder.trainable == "lora" else recipe.embedder.trainable


def prepare_learning(recipe: Recipe, embedder: Embedder) -> None:
    """Add what learns besides the embedder's own weights: adapters, if the recipe has them."""
    fields = recipe.embedder
    if fields.trainable == "lora":
        add_adapters(embedder, fields.lora_rank, fields.lora_alpha, fields.last)


def learned_weights(embedder: Embedder) -> list[nn.Parameter]:
    """Return the weights of the backbone that may learn: its adapters where it has them, else all."""
    named = dict(embedder.backbone.named_parameters())
    adapters = [weights for name, weights in named.items() if is_adapter(name)]
    return adapters or list(named.values())


class Learning:
    """Freezes what must not learn: stages before the cut, stages whose turn has not come, BatchNorm's statistics."""

    def __init__(self, recipe: Recipe, embedder: Embedder) -> None:
        self.recipe, self.embedder = recipe, embedder
        self.stages = stage_tensors(embedder.backbone)
        self.frozen = frozen_count(recipe, embedder)
        self._first_now: int | None = None
        learned = {id(weights) for weights in learned_weights(embedder)}
        self._base = {
            id(weights) for weights in embedder.backbone.parameters()
        } - learned  # beside which adapters learn

    def first_stage(self, epoch: int) -> int:
        """Return the first stage that learns in an epoch: none in warm-up; then all, or one more every few epochs."""
        schedule, count = self.recipe.schedule, len(self.stages)
        since = epoch - schedule.warmup_epochs
        if since < 0:
            return count
        if not schedule.unfreeze_epochs:
            return self.frozen
        return max(self.frozen, count - 1 - since // schedule.unfreeze_epochs)

    def begin_epoch(self, epoch: int) -> None:
        """Set what learns in an epoch."""
        first = self.first_stage(epoch)
        if self.embedder.training and first == self._first_now:
            return  # unchanged: avoids setting hundreds of modules again for an epoch of a few steps
        self._first_now = first
        still = self._base | {id(tensor) for stage in self.stages[:first] for tensor in stage.values()}
        for weights in self.embedder.backbone.parameters():
            weights.requires_grad_(id(weights) not in still)
        self.embedder.train()
        fields = self.recipe.embedder
        for module in self.embedder.backbone.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                learns = not any(id(tensor) in still for tensor in module.state_dict(keep_vars=True).values())
                if not learns or fields.freeze_batch_norm:
                    module.eval()
                module.requires_grad_(learns and not fields.freeze_batch_norm_weights)

    def weights(self) -> list[nn.Parameter]:
        """Return the parameters that learn at some time."""
        if self.recipe.embedder.trainable == "head":
            return list(self.embedder.head.parameters())
        never = self._base | {id(tensor) for stage in self.stages[: self.frozen] for tensor in stage.values()}
        return [weights for weights in self.embedder.parameters() if id(weights) not in never]

    def state(self) -> dict[str, torch.Tensor]:
        """Return what training changes of the embedder's state: frozen stages are rebuilt from the recipe."""
        never = {f"backbone.{name}" for stage in self.stages[: self.frozen] for name in stage}
        if self._base:
            never = {f"backbone.{name}" for name in self.embedder.backbone.state_dict() if not is_adapter(name)}
        return {name: value for name, value in self.embedder.state_dict().items() if name not in never}
