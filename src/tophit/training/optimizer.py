"""The optimizer of a recipe, and how its learning rates move."""

import math

import torch
from torch import nn

from tophit.models.embedder import Embedder
from tophit.recipe import Recipe


def make_optimizer(recipe: Recipe, embedder: Embedder, loss: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW with the groups backbone (if it is trainable), head and the loss's own parameters."""
    groups = [(embedder.head, recipe.optimizer.head), (loss, recipe.optimizer.proxies)]
    if recipe.embedder.trainable == "all":
        groups.insert(0, (embedder.backbone, recipe.optimizer.backbone))  # type: ignore[arg-type]
    return torch.optim.AdamW(
        [
            {"params": list(module.parameters()), "lr": settings.lr, "weight_decay": settings.weight_decay}
            for module, settings in groups
        ]
    )


def learning_rate_factor(decay: str, progress: float) -> float:
    """Return the factor on every learning rate at a share of all steps: 1 to 0 along a cosine, or always 1."""
    return 0.5 * (1 + math.cos(math.pi * progress)) if decay == "cosine" else 1.0
