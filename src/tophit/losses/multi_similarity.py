"""Multi-similarity loss: soft maxima over the hard positives and the hard negatives of each image."""

import math
from typing import Annotated

import torch

from tophit.losses.pairwise.npair import log_one_plus_sum_exp
from tophit.losses.ranking_loss import Candidates, RankingLoss
from tophit.losses.similarity import similarity_matrix
from tophit.options import AtLeastZero, Doc, OnUnitVectors, Positive
from tophit.registry import register


@torch.no_grad()
def hard_pairs(
    similarity: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pairs that an image's hardest opposite pair makes informative, as two masks (Q, N).

    A negative counts if it is more similar than the least similar positive, less epsilon; a positive if it is less
    similar than the most similar negative, plus epsilon (Wang et al., CVPR 2019, the paper's pair mining). NaN counts,
    so that it shows in the loss.
    """
    least = similarity.masked_fill(~positive, math.inf).amin(dim=1, keepdim=True)
    most = similarity.masked_fill(~negative, -math.inf).amax(dim=1, keepdim=True)
    return positive & ~(similarity >= most + epsilon), negative & ~(similarity <= least - epsilon)


def multi_similarity(
    similarity: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, alpha: float, beta: float, base: float
) -> torch.Tensor:
    """Return each image's loss (Q,), with P and N its chosen positives and negatives (Wang et al., CVPR 2019):

        1/alpha log(1 + sum_{P} exp(-alpha (s - base))) + 1/beta log(1 + sum_{N} exp(beta (s - base)))

    Shapes: similarity and both masks (Q, N).
    """  # noqa: D400
    pull = log_one_plus_sum_exp(-alpha * (similarity - base), positive) / alpha
    return pull + log_one_plus_sum_exp(beta * (similarity - base), negative) / beta


@register("loss", "multi-similarity")
class MultiSimilarityLoss(RankingLoss):
    """Multi-similarity loss (Wang et al., CVPR 2019, "Multi-similarity loss with general pair weighting").

    First each image keeps the pairs that its hardest opposite pair makes informative (``hard_pairs``), then soft
    maxima weigh them (``multi_similarity``); the mean over all images of the batch.

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar. ``mining=False`` takes all pairs. Embeddings
    are normalised unless ``normalize=False``. ``ref_emb`` and ``ref_labels`` are a memory to compare with instead of
    the batch; ``indices_tuple`` restricts the pairs before its own mining.

    The paper prints base = 1; the authors' code has 0.5 and beta between 40 and 50. The defaults are those of the code,
    with beta = 50 as printed. It is a strong baseline for batches of 4 or 5 images per class and needs no miner.

    >>> loss = MultiSimilarityLoss()
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        alpha: Annotated[Positive, Doc("Sharpness of the maximum over positives.")] = 2.0,
        beta: Annotated[Positive, Doc("Sharpness of the maximum over negatives.")] = 50.0,
        base: Annotated[float, Doc("Similarity that parts positives from negatives (the paper's lambda).")] = 0.5,
        mining: Annotated[bool, Doc("Keep only informative pairs, as the paper does.")] = True,
        epsilon: Annotated[AtLeastZero, Doc("How far beyond the hardest opposite pair mining reaches.")] = 0.1,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.mining = mining
        self.epsilon = epsilon

    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the mean over all images."""
        x, y, positive, negative = given
        similarity = similarity_matrix(x, y)
        if self.mining and similarity.numel():
            positive, negative = hard_pairs(similarity, positive, negative, self.epsilon)
        self._used = positive.sum() + negative.sum()
        losses = multi_similarity(similarity, positive, negative, self.alpha, self.beta, self.base)
        return losses.sum() / max(1, len(x))
