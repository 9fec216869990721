"""Recall@k surrogate: how many positives rank among the first k, with soft ranks and soft counting."""

from collections.abc import Sequence
from typing import Annotated

import torch

from tophit.losses.ranking_loss import Candidates, RankingLoss
from tophit.losses.similarity import similarity_matrix
from tophit.losses.similarity_mixup import with_virtual_images
from tophit.losses.soft_rank import Penalty, ranking_loss
from tophit.options import Count, Doc, OnUnitVectors, Positive
from tophit.registry import register


def soft_misses(
    similarity: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    k: Sequence[int],
    temperature: float,
    rank_temperature: float,
) -> torch.Tensor:
    """Return one minus the mean over queries and over k of the soft recall (Patel et al., CVPR 2022):

        recall@k(q) = 1 / min(k, |P_q|) sum_{i in P_q} G1(k - r_i),    r_i = 1 + sum_{j != i} G2(s_qj - s_qi)

    G1 and G2 are sigmoids of x / rank_temperature and x / temperature. Shapes: similarity and both masks (Q, N).
    """  # noqa: D400

    def evaluate(
        negatives: torch.Tensor, positives: torch.Tensor, count: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        value, slope = torch.ones_like(negatives), torch.zeros_like(negatives)
        for each in k:
            share = count / count.clamp(max=each) / len(k)  # the core averages over the positives
            found = torch.sigmoid((each - 1 - negatives - positives) / rank_temperature)
            value -= share * found
            slope += share * found * (1 - found) / rank_temperature
        return value, slope, slope

    losses = ranking_loss(similarity, positive, negative, Penalty(evaluate, counts_positives=True), temperature)
    return losses.sum() / positive.any(dim=1).sum().clamp(min=1)


@register("loss", "recall-at-k", called=("recall@k", "rs@k"))
class RecallAtKLoss(RankingLoss):
    """Recall@k surrogate loss (Patel, Tolias and Matas, CVPR 2022): one minus a smooth recall@k, for several k at once.

    For the equation see ``soft_misses``. Recall here is the share of the positives that are among the first k, of at
    most k; the metric ``recall@k`` asks only for one of them. The loss of a perfect ranking is not 0, because the soft
    counting of the last place, G1(0), is one half.

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar, the mean over queries with a positive.
    Embeddings are normalised unless ``normalize=False``. ``ref_emb`` and ``ref_labels`` are a memory to rank instead of
    the batch. The query is not among its own candidates, as in the paper; in the authors' code it is, which raises all
    ranks by one, and the softness of the counting is k itself. That code also cuts a query's recall at 1, which a sum
    of soft counts passes only with more than ten positives.

    ``mixup`` adds the paper's similarity mixup, SiMix: ``with_virtual_images``.

    Use it with large batches (``batches.chunk``): the paper has 4,000 images, 4 per class. ``SmoothAPLoss`` cares for
    the whole ranking, this loss only for its head.

    >>> loss = RecallAtKLoss(k=(1, 2))
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        k: Annotated[tuple[Count, ...], Doc("Lengths of the head of the ranking.", min_length=1)] = (1, 2, 4, 8, 16),
        temperature: Annotated[Positive, Doc("Softness of the ranks.")] = 0.01,
        rank_temperature: Annotated[Positive, Doc("Softness of counting a rank among the first k.")] = 1.0,
        mixup: Annotated[bool, Doc("Add virtual images between two of a class (SiMix).")] = False,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.k = k
        self.mixup = mixup
        self.temperature = temperature
        self.rank_temperature = rank_temperature

    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the mean over queries that have a positive."""
        x, y, positive, negative = with_virtual_images(given) if self.mixup else given
        similarity = similarity_matrix(x, y)
        return soft_misses(similarity, positive, negative, self.k, self.temperature, self.rank_temperature)
