"""Contrastive loss: pull pairs of one class together, push others apart up to a margin."""

from typing import Annotated

import torch

from tophit.losses.pairwise.pair_loss import PairLoss, Tuples, mean_or_zero, pair_distances
from tophit.options import Doc, OnUnitVectors, Positive
from tophit.registry import register


def contrastive(distances: torch.Tensor, same: torch.Tensor, margin: float) -> torch.Tensor:
    """Return each pair's term y d^2 + (1 - y) [margin - d]+^2 (PROFS paper, Eq. 3.1); all are (P,)."""
    return torch.where(same, distances.square(), (margin - distances).clamp(min=0).square())


@register("loss", "contrastive")
class ContrastiveLoss(PairLoss):
    """Contrastive loss (Hadsell et al., CVPR 2006), as in the PROFS paper's Eq. 3.1.

        mean over pairs of  y d^2 + (1 - y) [margin - d]+^2,  d the Euclidean distance

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar. ``pairs=(i, j)`` or ``triplets=(a, p, n)``
    restrict it; without them it takes all pairs of the batch. Embeddings are normalised unless ``normalize=False``.

    Use it with a miner or a projection that balances positives and negatives: nearly all pairs are negatives, most of
    them beyond the margin. ``MarginLoss`` is a related loss that lets a class keep its spread.
    pytorch-metric-learning's loss of this name is a different function: its hinge is not squared.

    >>> loss = ContrastiveLoss(margin=1.0)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        margin: Annotated[Positive, Doc("Distance beyond which negatives are left alone.")] = 1.0,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.margin = margin

    def compute(self, tuples: Tuples) -> torch.Tensor:
        """Return the mean of the equation."""
        terms = contrastive(*pair_distances(tuples), self.margin)
        self._used = len(terms)
        return mean_or_zero(terms, tuples.batch.queries)
