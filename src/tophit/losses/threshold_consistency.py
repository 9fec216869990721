"""Threshold-consistent margin: one cut-off on the similarity that suits every class."""

import torch
from torch import nn

from tophit.losses.loss_with_term import LossWithTerm
from tophit.losses.ranking_loss import find_candidates
from tophit.losses.roadmap import calibration
from tophit.losses.similarity import similarity_matrix


class ThresholdConsistentLoss(LossWithTerm):
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
        super().__init__(loss, weight)
        self.high, self.low = high, low

    def term(self, units: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return pull and push of the pairs of unit vectors (N, d)."""
        classes = labels[:, -1] if getattr(self.loss, "takes_paths", False) and labels.ndim == 2 else labels
        _, _, positive, negative = find_candidates(units, classes, normalize=False)
        return calibration(similarity_matrix(units, units), positive, negative, self.high, self.low)
