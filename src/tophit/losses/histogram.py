"""Histogram loss: the chance that a random negative pair is more similar than a random positive pair."""

from typing import Annotated

import torch

from tophit.losses.ranking_loss import Candidates, RankingLoss
from tophit.losses.similarity import similarity_matrix
from tophit.losses.soft_histogram import soft_histograms
from tophit.options import Count, Doc, OnUnitVectors
from tophit.registry import register


def histogram_loss(similarity: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, bins: int) -> torch.Tensor:
    """Return sum_r h-_r sum_{q <= r} h+_q, from the shares of positive and of negative pairs at each similarity.

    It estimates the probability that a negative pair is at least as similar as a positive one (Ustinova and Lempitsky,
    NIPS 2016). 0 if there are no positive or no negative pairs. Shapes: similarity and both masks (Q, N).
    """
    counts = [each.sum(dim=0) for each in soft_histograms(similarity, positive, negative, bins, -1.0, 1.0)]
    found, wrong = (count / mask.sum().clamp(min=1) for count, mask in zip(counts, (positive, negative), strict=True))
    return (wrong * found.cumsum(dim=0)).sum()


@register("loss", "histogram")
class HistogramLoss(RankingLoss):
    """Histogram loss (Ustinova and Lempitsky, NIPS 2016, "Learning deep embeddings with histogram loss").

    Two histograms, of the similarities of all positive and of all negative pairs of a batch; the loss is the chance
    that a negative pair is the more similar one. For the equation see ``histogram_loss``.

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar. Similarities from -1 to 1 fall into ``bins``
    + 1 bins; the paper's step of 0.01 is 200. Embeddings are normalised unless ``normalize=False``; then similarities
    beyond 1 count as 1. ``ref_emb`` and ``ref_labels`` are a memory to compare with instead of the batch.

    Use it where no margin or weight should be tuned: it has none. It needs batches with many pairs, and treats all
    classes alike: it compares pairs of different images, where the ranking losses compare each image's own.

    >>> loss = HistogramLoss()
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        bins: Annotated[Count, Doc("Intervals that the similarities from -1 to 1 are divided into.")] = 200,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.bins = bins

    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the loss of all pairs."""
        x, y, positive, negative = given
        return histogram_loss(similarity_matrix(x, y), positive, negative, self.bins)
