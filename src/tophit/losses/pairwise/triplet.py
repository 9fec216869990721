"""Triplet loss: a positive must be nearer than a negative by a margin, over chosen triplets or all of a batch."""

from typing import Annotated, Any

import torch

from tophit.losses.loss import eager
from tophit.losses.pairwise.pair_loss import (
    PairLoss,
    Tuples,
    masks,
    mean_or_zero,
    squared_distances,
    squared_distances_of,
)
from tophit.options import Doc, OnUnitVectors
from tophit.registry import register

# Hinges computed at a time when all triplets of a batch are used: a large batch of few classes has billions.
_CHUNK = 1 << 21


@register("loss", "triplet")
class TripletLoss(PairLoss):
    """Triplet loss (Schroff et al., CVPR 2015), as in the PROFS paper's Eq. 3.2.

        mean over triplets of  [d(a, p)^2 - d(a, n)^2 + margin]+,  zero terms included

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar. ``triplets=(a, p, n)`` restricts it to these;
    ``pairs=(i, j)`` to the triplets whose pairs (a, p) and (a, n) are both given; without them it takes all triplets
    of the batch, with memory of the order of the distance matrix. Embeddings are normalised unless ``normalize=False``.

    Use it with the semi-hard miner, or in a projection. It needs no absolute distances, so classes may keep different
    spreads. pytorch-metric-learning's loss of this name uses plain distances and averages over non-zero terms.

    >>> loss = TripletLoss(margin=0.2)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        margin: Annotated[float, Doc("How much nearer the positive must be, in squared distance.")] = 0.2,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.margin = margin

    def compute(self, tuples: Tuples) -> torch.Tensor:
        """Return the mean of the equation."""
        batch = tuples.batch
        if tuples.triplets is not None:
            a, p, n = tuples.triplets
            self._used = len(a)
            near, far = squared_distances_of(batch, (a, p), (a, n))
            return mean_or_zero((near - far + self.margin).clamp(min=0), batch.queries)
        positive, negative = masks(tuples)
        self._used = count_triplets(positive, negative)
        squared = squared_distances(batch.queries, batch.candidates)
        return all_triplets(squared, positive, negative, self.margin)


def count_triplets(positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    """Return the number of triplets of all (a, p) and (a, n) of two masks (N, M)."""
    return (positive.sum(dim=1) * negative.sum(dim=1)).sum()


@eager
def all_triplets(squared: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, margin: float) -> torch.Tensor:
    """Return the mean of [squared[a, p] - squared[a, n] + margin]+ over all (a, p) and (a, n) of two masks (N, M)."""
    count = count_triplets(positive, negative)
    if not int(count):
        return squared.sum() * 0
    return _SumOfHinges.apply(squared, positive, negative, margin) / count  # type: ignore[operator]


class _SumOfHinges(torch.autograd.Function):
    """The sum over all triplets, one chunk of (a, p) at a time; the same pass computes the gradient of the matrix."""

    @staticmethod
    def forward(
        ctx: Any, squared: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, margin: float
    ) -> torch.Tensor:
        anchors, positives = positive.nonzero(as_tuple=True)
        gradient = torch.zeros_like(squared)
        total = squared.new_zeros(())
        size = max(1, _CHUNK // squared.shape[1])
        for start in range(0, len(anchors), size):
            a, p = anchors[start : start + size], positives[start : start + size]
            hinges = (squared[a, p][:, None] - squared[a] + margin).masked_fill_(~negative[a], 0).clamp_(min=0)
            total += hinges.sum()
            active = (hinges > 0).to(squared.dtype)
            gradient.index_put_((a, p), active.sum(dim=1), accumulate=True)
            gradient.index_add_(0, a, active, alpha=-1)
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0], None, None, None
