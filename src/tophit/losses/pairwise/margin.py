"""Margin loss: a learned boundary between distances within a class and distances across classes."""

from typing import Annotated

import torch
from torch import nn

from tophit.losses.pairwise.pair_loss import PairLoss, Tuples, mean_or_zero, pair_distances
from tophit.options import AtLeastZero, Doc, OnUnitVectors, Positive
from tophit.registry import register


def margin_terms(
    distances: torch.Tensor, same: torch.Tensor, boundary: torch.Tensor | float, margin: float
) -> torch.Tensor:
    """Return each pair's term y [d - boundary + margin]+ + (1 - y) [boundary + margin - d]+ (Eq. 3.3); all are (P,)."""
    return (torch.where(same, distances - boundary, boundary - distances) + margin).clamp(min=0)


@register("loss", "margin")
class MarginLoss(PairLoss):
    """Margin loss (Wu et al., ICCV 2017), as in the PROFS paper's Eq. 3.3.

        mean over pairs of  y [d - boundary + margin]+ + (1 - y) [boundary + margin - d]+

    ``boundary`` is trained with the network; a recipe's ``optimizer.proxies`` says how fast.
    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar. ``pairs=(i, j)`` or ``triplets=(a, p, n)``
    restrict it; without them it takes all pairs of the batch. Embeddings are normalised unless ``normalize=False``.

    Use it with the balanced-hard or the distance-weighted miner, or in a projection, whose constraints (Eq. 4.6) it
    matches: same class within boundary - margin, others beyond boundary + margin. pytorch-metric-learning's loss of
    this name is a different function: it takes triplets and divides by the number of non-zero terms.

    >>> loss = MarginLoss(boundary=1.2, margin=0.2)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        boundary: Annotated[Positive, Doc("Initial boundary; optimizer.proxies sets its learning rate.")] = 1.2,
        margin: Annotated[AtLeastZero, Doc("Required distance from the boundary.")] = 0.2,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.boundary = nn.Parameter(torch.tensor(float(boundary), dtype=torch.float32))
        # The rounding error of 1.2 in float32; adding it back gives float64 embeddings the exact equation.
        self._rounded = float(boundary) - self.boundary.item()
        self.margin = margin

    def compute(self, tuples: Tuples) -> torch.Tensor:
        """Return the mean of the equation."""
        distances, same = pair_distances(tuples)
        self._used = len(distances)
        boundary = self.boundary.to(distances.dtype) + self._rounded
        return mean_or_zero(margin_terms(distances, same, boundary, self.margin), tuples.batch.queries)
