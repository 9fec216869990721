"""FastAP: average precision from soft histograms of distances."""

from typing import Annotated

import torch

from tophit.losses.pairwise.pair_loss import squared_distances
from tophit.losses.ranking_loss import Candidates, RankingLoss
from tophit.losses.soft_histogram import soft_histograms
from tophit.options import Count, Doc, OnUnitVectors
from tophit.registry import register

_FARTHEST = 4.0  # squared distance of opposite unit vectors


def fastap(squared: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, bins: int) -> torch.Tensor:
    """Return each query's FastAP (Q,): its average precision if items in one bin share their rank; 0 without positives.

        1 / |P_q| sum_l h+_l H+_l / H_l

    h+_l softly counts the positives at the l-th distance, H+_l and H_l the positives and all items up to it (Cakir et
    al., CVPR 2019). Shapes: squared distances and both masks (Q, N).
    """
    found, wrong = soft_histograms(squared, positive, negative, bins, 0.0, _FARTHEST)
    found_before = found.cumsum(dim=1)
    before = found_before + wrong.cumsum(dim=1)
    precision = found_before / torch.where(before > 0, before, 1)
    return (found * precision).sum(dim=1) / positive.sum(dim=1).clamp(min=1)


@register("loss", "fastap")
class FastAPLoss(RankingLoss):
    """FastAP loss (Cakir et al., CVPR 2019, "Deep metric learning to rank"): one minus a histogram's average precision.

        1 - mean_q FastAP_q,  over the queries that have a positive;  for the equation see ``fastap``

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar. Distances between unit vectors are squared,
    0 to 4, in ``bins`` + 1 bins. Embeddings are normalised unless ``normalize=False``; then distances beyond 4 count as
    4. ``ref_emb`` and ``ref_labels`` are a memory to rank instead of the batch.

    Use it with large batches, where its time, linear in the pairs, counts; ``SmoothAPLoss`` compares pairs of pairs.
    Items within a bin are not ranked, so more bins are sharper but have fewer items with a gradient each.

    >>> loss = FastAPLoss()
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        bins: Annotated[Count, Doc("Intervals that the squared distances from 0 to 4 are divided into.")] = 10,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.bins = bins

    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the mean over queries that have a positive."""
        x, y, positive, negative = given
        has_positives = positive.any(dim=1)
        losses = torch.where(has_positives, 1 - fastap(squared_distances(x, y), positive, negative, self.bins), 0)
        return losses.sum() / has_positives.sum().clamp(min=1)
