"""From the recipe's embedder section to the embedder itself."""

import torch

from tophit.models.embedder import Embedder, build_embedder
from tophit.recipe import Recipe
from tophit.training.devices import choose_device


def make_embedder(recipe: Recipe, head: bool = True, device: torch.device | None = None) -> Embedder:
    """Build the recipe's embedder as it is before training, with an untrained head or with none."""
    fields = recipe.embedder
    dim = fields.dim if head else None
    embedder = build_embedder(
        fields.backbone,
        fields.weights,
        fields.pooling,
        fields.p,
        dim,
        fields.size,
        fields.crop,
        fields.squash,
        learn_p=fields.learn_p,
        levels=fields.levels,
        layer_norm=fields.layer_norm and head,
    )
    return embedder.to(device or choose_device(recipe.device))
