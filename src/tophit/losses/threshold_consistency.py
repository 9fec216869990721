"""Threshold-consistent margin: one cut-off on the similarity that suits every class."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tophit.losses.ranking_loss import find_candidates
from tophit.losses.roadmap import calibration
from tophit.losses.similarity import similarity_matrix


class ThresholdConsistentLoss(nn.Module):
    """A loss plus the threshold-consistent margin (Zhang et al., ICLR 2024): loss + weight (pull + push).

    pull is the mean of ``high`` - s over positive pairs of a batch with a similarity s below it, push that of
    s - ``low`` over negative pairs above it; other pairs are left alone (``calibration``). So similar images of all
    classes end above one cut-off and others below it.

    Shapes: embeddings (N, d), labels as the loss takes them, and whatever else it takes. Of paths in a hierarchy the
    finest level counts. A memory is compared by the loss alone.

    >>> from tophit.losses import TripletLoss
    >>> loss = ThresholdConsistentLoss(TripletLoss())
    >>> loss(torch.randn(4, 3), torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(self, loss: nn.Module, weight: float = 1.0, high: float = 0.9, low: float = 0.5) -> None:
        super().__init__()
        self.loss = loss
        self.weight, self.high, self.low = weight, high, low
        self.normalize = getattr(loss, "normalize", False)
        self.restriction = getattr(loss, "restriction", None)

    @property
    def used(self) -> int | None:
        """How many pairs or triplets the loss compared in the last call."""
        return getattr(self.loss, "used", None)

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor, *chosen: Any, **others: Any) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with labels (N,), and the margins' term."""
        value = self.loss(embeddings, labels, *chosen, **others)
        if "ref_emb" in others:
            return value
        with torch.autocast(embeddings.device.type, enabled=False):
            unit = functional.normalize(embeddings.float(), dim=1)
            classes = labels[:, -1] if getattr(self.loss, "takes_paths", False) and labels.ndim == 2 else labels
            _, _, positive, negative = find_candidates(unit, classes, normalize=False)
            return value + self.weight * calibration(
                similarity_matrix(unit, unit), positive, negative, self.high, self.low
            )
