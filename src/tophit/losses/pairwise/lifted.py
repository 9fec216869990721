"""Lifted structure loss: each positive pair against all negatives of both its images."""

import math
from typing import Annotated

import torch

from tophit.losses.loss import eager
from tophit.losses.pairwise.pair_loss import PairLoss, Tuples, distance, masks, squared_distances
from tophit.options import Doc, OnUnitVectors
from tophit.registry import register


@eager
def lifted_structure(
    distances: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, alpha: float
) -> torch.Tensor:
    """Return the loss of a matrix of distances (n, n) and two symmetric masks.

    With P the unordered positive pairs and N_i the negatives of i (Song et al., CVPR 2016, Eq. 4):

        1 / (2 |P|) sum_{(i, j) in P} [log(s_i + s_j) + d_ij]+^2,  s_i = sum_{k in N_i} exp(alpha - d_ik)
    """
    i, j = positive.triu(diagonal=1).nonzero(as_tuple=True)
    has_negatives = negative.any(dim=1)
    exponents = (alpha - distances).masked_fill(~negative, -math.inf)
    # A row without negatives has no gradient, but minus infinity everywhere would make it NaN.
    pushes = torch.where(has_negatives[:, None], exponents, 0).logsumexp(dim=1).masked_fill(~has_negatives, -math.inf)
    pushed = has_negatives[i] | has_negatives[j]
    i, j, pairs = i[pushed], j[pushed], max(1, len(i))
    terms = torch.logaddexp(pushes[i], pushes[j]) + distances[i, j]
    return terms.clamp(min=0).square().sum() / (2 * pairs)


@register("loss", "lifted-structure")
class LiftedStructureLoss(PairLoss):
    """Lifted structure loss (Song et al., CVPR 2016).

    For each positive pair, a soft maximum over the negatives of both images pushes and the pair's distance pulls; for
    the equation see ``lifted_structure``. ``alpha`` is the margin.

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar. ``pairs=(i, j)`` restrict it to these pairs,
    in either order: positive pairs form P, only negative pairs push. A projection gives the pairs with a
    representative. Embeddings are not normalised, as in the paper, unless ``normalize=True``.

    Use it with batches of several images per class; it needs no miner. ``NPairLoss`` is lighter: one positive per
    class.

    >>> loss = LiftedStructureLoss(alpha=1.0)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    restriction = "pairs"

    def __init__(
        self,
        alpha: Annotated[float, Doc("Margin of the negatives.")] = 1.0,
        normalize: Annotated[OnUnitVectors, Doc("Normalise embeddings to unit length; the paper does not.")] = False,
    ) -> None:
        super().__init__(normalize)
        self.alpha = alpha

    def compute(self, tuples: Tuples) -> torch.Tensor:
        """Return the mean of the equation."""
        x, y = tuples.batch.queries, tuples.batch.candidates
        positive, negative = masks(tuples)
        chosen = positive | negative
        self._used = (chosen | chosen.T).triu(diagonal=1).sum() if y is x else chosen.sum()
        distances = distance(squared_distances(x, y))
        if y is not x:  # rows and memory as one set, in which only pairs between them count
            positive, negative, distances = _joined(positive), _joined(negative), _joined(distances)
        return lifted_structure(distances, positive | positive.T, negative | negative.T, self.alpha)


def _joined(block: torch.Tensor) -> torch.Tensor:
    """Return the symmetric matrix (N + M, N + M) of a block (N, M) of pairs between two sets."""
    rows, columns = block.shape
    upper = torch.cat([block.new_zeros(rows, rows), block], dim=1)
    lower = torch.cat([block.T, block.new_zeros(columns, columns)], dim=1)
    return torch.cat([upper, lower])
