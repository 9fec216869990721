"""Top-k precision loss: pull in positives that just missed the top k, push out the negatives in their places."""

import math
from typing import Annotated, Literal, NamedTuple

import torch
from torch.nn import functional

from tophit.losses.loss import eager
from tophit.losses.ranking_loss import Candidates, IndicesTuple, RankingLoss, find_candidates
from tophit.options import Count, Doc, OnUnitVectors
from tophit.registry import register

# Similarities ranked at a time: enough for a fast matrix product, little compared with the batch's own memory.
_CHUNK = 1 << 22


class MisplacedPairs(NamedTuple):
    """The pairs that the loss moves: candidate ``positives[i]`` belongs in the top k of query ``queries[i]``, in
    place of candidate ``negatives[i]``. All are (M,); the pairs of a query are adjacent, queries in order.
    """

    queries: torch.Tensor
    positives: torch.Tensor
    negatives: torch.Tensor


class Misplaced(NamedTuple):
    """For each query, the misplaced candidates: P belongs in the top k, N does not. Both have the same size."""

    positives: tuple[torch.Tensor, ...]
    negatives: tuple[torch.Tensor, ...]


@torch.no_grad()
def misplaced_pairs(
    similarity: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, k: int, margin: float
) -> MisplacedPairs:
    """Return the sets P and N of each query (Eqs. 6, 7, 9, 10) as pairs.

    With shat = s + margin for negatives, s for positives (Eq. 4), K the first k candidates by shat and a the number
    of positives in K, both of the paper's cases reduce to: m = min(n+, k) - a; P = the first m positives outside K;
    N = the last m negatives inside K. Ties are broken by index, the lower one first, so that |P| = |N| always.
    Shapes: similarity and both masks (Q, N).
    """
    width = min(k, similarity.shape[1])
    if width == 0 or len(similarity) == 0:
        return MisplacedPairs(*(torch.zeros(0, dtype=torch.long, device=similarity.device) for _ in range(3)))
    positives, positive_columns = _stable_topk(similarity.masked_fill(~positive, -math.inf), width)
    negatives, negative_columns = _stable_topk(similarity.masked_fill(~negative, -math.inf), width)
    # The overall top k are among the top k of positives and the top k of negatives.
    values = torch.cat([positives, negatives + margin], dim=1)
    order = _stable_order(values, torch.cat([positive_columns, negative_columns], dim=1))[:, :width]
    exists = values.gather(1, order) > -math.inf
    positives_in = (exists & (order < width)).sum(dim=1, keepdim=True)
    negatives_in = exists.sum(dim=1, keepdim=True) - positives_in
    misplaced = positive.sum(dim=1, keepdim=True).clamp(max=k) - positives_in
    rank = torch.arange(width, device=similarity.device)
    is_p = (rank >= positives_in) & (rank < positives_in + misplaced)
    is_n = (rank >= negatives_in - misplaced) & (rank < negatives_in)
    queries = is_p.nonzero()[:, 0]
    return MisplacedPairs(queries, positive_columns[is_p], negative_columns[is_n])


def _stable_topk(values: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k largest of each row and their columns, in order; of equal values the lower column comes first."""
    if k >= values.shape[1]:
        top = values.sort(dim=1, descending=True, stable=True)
        return top.values, top.indices
    best, columns = values.topk(k + 1, dim=1)
    # topk picks arbitrarily among values that tie at the border, so the few rows with such ties are sorted instead.
    unsure = (best[:, k - 1] == best[:, k]) & (best[:, k] > -math.inf)
    best, columns = best[:, :k], columns[:, :k]
    if bool(unsure.any()):
        rows = unsure.nonzero()[:, 0]
        columns = columns.index_copy(0, rows, values[rows].argsort(dim=1, descending=True, stable=True)[:, :k])
        best = values.gather(1, columns)
    order = _stable_order(best, columns)
    return best.gather(1, order), columns.gather(1, order)


def _stable_order(values: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Return the order of each row by descending value, then by ascending column."""
    by_column = columns.argsort(dim=1)
    by_value = values.gather(1, by_column).argsort(dim=1, descending=True, stable=True)
    return by_column.gather(1, by_value)


def topk_precision(
    similarity: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, k: int, margin: float
) -> torch.Tensor:
    """Return for each query (Q,) sum_{N} shat - sum_{P} shat (Lu et al., ICCV 2019, Eq. 5).

    It equals the sum of the k largest shat minus that of the best possible k: the k largest positives, or, if there
    are fewer than k, all of them and the largest negatives. Shapes: similarity and both masks (Q, N).
    """
    queries, positives, negatives = misplaced_pairs(similarity, positive, negative, k, margin)
    gaps = similarity[queries, negatives] + margin - similarity[queries, positives]
    return similarity.new_zeros(len(similarity)).index_add(0, queries, gaps)


@register("loss", "topk-precision", called=("topk",))
class TopKPrecisionLoss(RankingLoss):
    """Top-k precision loss (Lu, Xu et al., ICCV 2019, "Sampling wisely").

    For each query it finds the misplaced images next to the border of the top k, the positives P just outside and
    the negatives N just inside, |P| = |N|, and sums shat over N minus shat over P, where negatives carry a margin.
    It is an upper bound on the number of negatives in the top k and 0 when the first page can't be improved.

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar. ``reduction`` is "sum" over queries, as
    printed in the paper (Algorithm 1), or "mean", whose learning rate does not depend on the batch. Embeddings are
    normalised unless ``normalize=False``. ``ref_emb`` and ``ref_labels`` are a memory to rank instead of the batch.

    Use it when only the first page counts; k is its length. The paper uses batches of 11 images per class with k = 5.
    The PNP losses and Smooth-AP look at the whole list instead.

    >>> loss = TopKPrecisionLoss(k=2)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        k: Annotated[Count, Doc("Length of the first page.")] = 5,
        margin: Annotated[float, Doc("Added to the similarity of negatives.")] = 0.1,
        reduction: Annotated[Literal["sum", "mean"], Doc("Over the queries of a batch.")] = "sum",
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.k = k
        self.margin = margin
        self.reduction = reduction

    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the sum or the mean over queries."""
        pairs = _mine(given, self.k, self.margin)
        self._used = len(pairs.queries)
        total = _sum_of_gaps(given, pairs, self.margin)
        return total if self.reduction == "sum" else total / max(1, len(given.queries))

    def misplaced(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        indices_tuple: IndicesTuple | None = None,
        ref_emb: torch.Tensor | None = None,
        ref_labels: torch.Tensor | None = None,
    ) -> Misplaced:
        """Return the misplaced sets for inspection: for each query the indices of P and of N, best ranked first."""
        with torch.autocast(embeddings.device.type, enabled=False):
            given = find_candidates(embeddings, labels, indices_tuple, ref_emb, ref_labels, self.normalize)
            pairs = _mine(given, self.k, self.margin)
        counts = torch.bincount(pairs.queries, minlength=len(embeddings)).tolist()
        return Misplaced(pairs.positives.split(counts), pairs.negatives.split(counts))


@eager
@torch.no_grad()
def _mine(given: Candidates, k: int, margin: float) -> MisplacedPairs:
    """Return all misplaced pairs, ranking one chunk of queries at a time, never forming the whole similarity matrix."""
    x, y, positive, negative = given
    size = max(1, _CHUNK // max(1, len(y)))
    found = []
    for start in range(0, max(1, len(x)), size):
        rows = slice(start, start + size)
        similarity = (x[rows] @ y.T).nan_to_num_(nan=torch.finfo(x.dtype).min)  # ranked last; the loss is still NaN
        queries, positives, negatives = misplaced_pairs(similarity, positive[rows], negative[rows], k, margin)
        found.append((queries + start, positives, negatives))
    return MisplacedPairs(*(torch.cat(parts) for parts in zip(*found, strict=True)))


@eager
def _sum_of_gaps(given: Candidates, pairs: MisplacedPairs, margin: float) -> torch.Tensor:
    """Return the sum over pairs of s_qn + margin - s_qp, as x_q . (sum of the n - sum of the p).

    Only the misplaced pairs have a gradient, so no product of the whole batch with itself is needed.
    """
    queries, positives, negatives = pairs
    bags = torch.cat([negatives, positives])
    order = torch.cat([queries, queries]).argsort(stable=True)
    sign = torch.cat([torch.ones_like(queries), -torch.ones_like(queries)]).to(given.queries.dtype)
    ends = torch.bincount(queries, minlength=len(given.queries)).mul(2).cumsum(0)
    starts = functional.pad(ends[:-1], (1, 0))
    pull = functional.embedding_bag(bags[order], given.candidates, starts, mode="sum", per_sample_weights=sign[order])
    return (given.queries * pull).sum() + margin * len(queries)
