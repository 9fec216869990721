"""A loss of your own: a registered class is chosen by its name, with its parameters as fields of the recipe."""

from typing import Annotated

import torch

import tophit
from tophit.losses.loss import Loss
from tophit.options import Doc
from tophit.registry import register


@register("loss", "pull")
class Pull(Loss):
    """Pull images of a class together, push others beyond a margin."""

    compares_images = True  # so it gets balanced batches

    def __init__(self, margin: Annotated[float, Doc("How far others are pushed.", gt=0)] = 0.5) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with labels (N,)."""
        distances = torch.cdist(embeddings, embeddings)
        same = labels[:, None] == labels[None, :]
        return torch.where(same, distances, (self.margin - distances).clamp(min=0)).mean()


result = tophit.train("photos/", out="runs/pull", loss={"name": "pull", "margin": 0.7}, schedule={"epochs": 2})
print(result)
# On the command line, with this file where Python finds it: --set loss.name=own_loss:Pull --set loss.margin=0.7
