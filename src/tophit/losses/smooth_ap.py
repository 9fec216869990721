"""Smooth-AP: average precision with soft counts instead of ranks."""

from typing import Annotated

import torch

from tophit.losses.ranking_loss import Candidates, RankingLoss
from tophit.losses.similarity import similarity_matrix
from tophit.losses.soft_rank import Penalty, ranking_loss
from tophit.options import Doc, OnUnitVectors, Positive
from tophit.registry import register


def smooth_ap(
    similarity: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    temperature: float,
    own: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return 1 - mean_q mean_{i in P_q} (1 + RP_i) / (1 + RP_i + R_i) over the queries that have positives.

    R_i and RP_i softly count the negatives and the other positives before positive i (PNP paper, Eq. 4; Brown et al.,
    ECCV 2020). Shapes: similarity and both masks (Q, N); ``own`` (Q,) is each query's similarity to itself, if it
    should count as a positive.
    """
    losses = ranking_loss(similarity, positive, negative, _IMPRECISION, temperature, own)
    return losses.sum() / positive.any(dim=1).sum().clamp(min=1)


def _imprecision(
    negatives: torch.Tensor, positives: torch.Tensor, _: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return R / (1 + RP + R), one minus the precision at a positive, and its derivatives with respect to R and RP."""
    place = 1 + positives + negatives
    return negatives / place, (1 + positives) / place**2, -negatives / place**2


_IMPRECISION = Penalty(_imprecision, counts_positives=True)


@register("loss", "smooth-ap")
class SmoothAPLoss(RankingLoss):
    """Smooth-AP loss (Brown et al., ECCV 2020): one minus a smooth average precision.

        1 - mean_q mean_{i in P_q} (1 + RP_i) / (1 + RP_i + R_i)

    with R_i and RP_i the soft counts of negatives and of other positives before positive i. As the temperature goes
    to 0, and with ``include_self=False``, it becomes one minus the mean average precision.

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar, the mean over queries with a positive.
    Embeddings are normalised unless ``normalize=False``. ``include_self`` counts each query as its own first positive,
    as the authors' code and the published numbers do. ``ref_emb`` and ``ref_labels`` are a memory to rank instead of
    the batch.

    Use it as the baseline for the PNP losses, with batches of 4 images per class. It works with any class sizes and
    any order of the batch.

    >>> loss = SmoothAPLoss()
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        temperature: Annotated[Positive, Doc("Softness of the counts.")] = 0.01,
        include_self: Annotated[bool, Doc("A query is its own first positive, as in the authors' code.")] = True,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.temperature = temperature
        self.include_self = include_self

    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the mean over queries that have a positive."""
        x, y, positive, negative = given
        own = (x * x).sum(dim=1) if self.include_self else None
        return smooth_ap(similarity_matrix(x, y), positive, negative, self.temperature, own)
