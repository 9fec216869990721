"""Soft ranks: how many negatives rank before each positive of a query. The core of PNP, Smooth-AP and recall@k.

For a query q, its positives P_q and negatives N_q, with s the similarities (PNP paper, Eqs. 2 and 3):

    R_i  = sum_{j in N_q}         G(s_qj - s_qi),    G(x) = 1 / (1 + exp(-x / temperature))
    RP_i = sum_{j in P_q, j != i} G(s_qj - s_qi)

A loss is a penalty of R_i (and RP_i), averaged over the positives of each query. Only (query, positive) rows are
formed, one chunk of queries at a time, and the gradient of the similarities is computed in the same pass, while the
chunk is still in the processor's cache. So time is Q x P x N, and memory Q x N, for Q queries, N candidates and P
positives.

Far behind a positive, G is 0 in floating point. Queries whose negatives are all that far behind are not evaluated.
Finer ways to skip work were measured and dropped: sorting each query's negatives takes longer than evaluating them all
(benchmarks/ranking_losses.py prints it), and picking out the near ones gained nothing.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from tophit.losses.loss import eager

# Elements in a chunk of comparisons. A CPU needs them in its cache (2^18 to 2^22 were measured: 2^20 is best or equal
# for 4 and for 32 images per class); a GPU needs enough of them to stay busy (a guess: not measured).
_CPU_CHUNK = 1 << 20
_GPU_CHUNK = 1 << 25


class Penalty(NamedTuple):
    """The cost of a positive, given the counts R and RP before it, of any shape; the result has the same shape.

    ``evaluate(R, RP, P)``, with P (c, 1) the number of each query's positives, returns (value, derivative with respect
    to R, derivative with respect to RP). If ``counts_positives`` is False, RP is never computed: it is given as zeros,
    and its derivative is ignored.
    """

    evaluate: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    counts_positives: bool


@eager
def ranking_loss(
    similarity: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    penalty: Penalty,
    temperature: float,
    own: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return for each query (Q,) the mean penalty of its positives; 0 for a query that has none.

    ``similarity`` is (Q, N); ``positive`` and ``negative`` are masks (Q, N). ``own`` (Q,), if given, is the similarity
    of each query to itself, which then counts as one more positive. Differentiable once, in similarity and own.
    """
    return _RankingLoss.apply(similarity, own, positive, negative, penalty, temperature)  # type: ignore[return-value]


@torch.no_grad()
def soft_rank(
    similarity: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, temperature: float
) -> torch.Tensor:
    """Return R (Q, N): the soft count of negatives before each positive; 0 where there is no positive (Eq. 2)."""
    ranks = torch.zeros_like(similarity)
    for chunk in _chunks(similarity, positive, negative, None, temperature):
        counts, _ = _count_negatives(chunk, temperature, with_slopes=False)
        rows = similarity.new_zeros(len(counts), similarity.shape[1])
        ranks[chunk.queries] = rows.scatter_add_(1, chunk.columns, counts)
    return ranks


class _Chunk(NamedTuple):
    """Queries processed together: c queries, P positives each (padded; column 0 is the query itself if it counts)."""

    queries: torch.Tensor  # (c,) their rows in the similarity matrix
    columns: torch.Tensor  # (c, P') candidates that are positives, without the query itself; padding is 0
    positives: torch.Tensor  # (c, P) similarities of the positives
    valid: torch.Tensor  # (c, P) False for padding
    negatives: torch.Tensor  # (c, N) similarities of the negatives, -inf elsewhere; (c, 0) if all are far behind


class _RankingLoss(torch.autograd.Function):
    """Keeps one matrix for the backward pass: the gradient of each query's loss with respect to its similarities."""

    @staticmethod
    def forward(
        ctx: Any,
        similarity: torch.Tensor,
        own: torch.Tensor | None,
        positive: torch.Tensor,
        negative: torch.Tensor,
        penalty: Penalty,
        temperature: float,
    ) -> torch.Tensor:
        with_slopes = any(ctx.needs_input_grad)
        losses = similarity.new_zeros(len(similarity))
        by_similarity = torch.zeros_like(similarity) if with_slopes else None
        by_own = None if own is None else torch.zeros_like(own)
        for chunk in _chunks(similarity, positive, negative, own, temperature):
            loss, by_negatives, by_positives = _penalise(chunk, penalty, temperature, with_slopes)
            losses[chunk.queries] = loss
            if by_similarity is None:
                continue
            if by_own is not None:
                by_own[chunk.queries] = by_positives[:, 0]
                by_positives = by_positives[:, 1:]
            if not by_negatives.shape[1]:
                by_negatives = similarity.new_zeros(len(loss), similarity.shape[1])
            by_similarity[chunk.queries] = by_negatives.scatter_add_(1, chunk.columns, by_positives)
        ctx.save_for_backward(by_similarity, by_own)
        return losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        by_similarity, by_own = ctx.saved_tensors
        (grad,) = grad_outputs
        return by_similarity * grad[:, None], None if by_own is None else by_own * grad, None, None, None, None


def _chunks(
    similarity: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    own: torch.Tensor | None,
    temperature: float,
) -> Iterator[_Chunk]:
    for queries in query_chunks(positive):
        yield from _split_settled(_make_chunk(queries, similarity, positive, negative, own), temperature)


def query_chunks(positive: torch.Tensor, matrices: int = 1) -> Iterator[torch.Tensor]:
    """Yield the queries (c,) that have positives, given a mask (Q, N), so many that their comparisons fit a chunk.

    Those with the most positives come first, so that padding stays small. ``matrices`` is how many arrays of
    comparisons (c, P, N) are needed at a time.
    """
    limit = (_CPU_CHUNK if positive.device.type == "cpu" else _GPU_CHUNK) // matrices
    counts = positive.sum(dim=1)
    order = counts.argsort(descending=True, stable=True)
    sizes = counts[order].tolist()
    start = 0
    while start < len(sizes) and sizes[start] > 0:
        size = max(1, limit // ((sizes[start] + 1) * max(1, positive.shape[1])))
        queries = order[start : start + size]
        if sizes[min(start + size, len(sizes)) - 1] == 0:  # the tail without positives
            queries = queries[counts[queries] > 0]
        yield queries
        start += size


def _make_chunk(
    queries: torch.Tensor,
    similarity: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    own: torch.Tensor | None,
) -> _Chunk:
    rows = similarity[queries]
    columns, valid = padded_columns(positive[queries])
    positives = rows.gather(1, columns)
    if own is not None:
        positives = torch.cat([own[queries, None], positives], dim=1)
        valid = torch.nn.functional.pad(valid, (1, 0), value=True)
    negatives = rows.masked_fill_(~negative[queries], -math.inf)
    return _Chunk(queries, columns, positives, valid, negatives)


def _split_settled(chunk: _Chunk, temperature: float) -> Iterator[_Chunk]:
    """Separate the queries whose negatives are all far behind every positive: they have nothing to evaluate.

    Far means that together they add less than the rounding error to R and its gradient, so R is exactly 0 in floats.
    """
    width = chunk.negatives.shape[1]
    reach = temperature * math.log(width / (torch.finfo(chunk.negatives.dtype).eps * min(1.0, temperature)))
    last = chunk.positives.masked_fill(~chunk.valid, math.inf).amin(dim=1)
    settled = chunk.negatives.amax(dim=1) <= last - reach  # False for NaN, which must show in the loss
    if not bool(settled.any()):
        yield chunk
        return
    parts = [_Chunk(*(part[rows] for part in chunk)) for rows in (~settled, settled)]
    if len(parts[0].queries):
        yield parts[0]
    yield parts[1]._replace(negatives=parts[1].negatives[:, :0])


def padded_columns(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the columns (c, P) where each row of a mask (c, N) is True, padded with 0, and which are not padding."""
    rows, columns = mask.nonzero(as_tuple=True)
    counts = mask.sum(dim=1)
    width = int(counts.max())
    places = torch.arange(len(rows), device=mask.device) - (counts.cumsum(0) - counts)[rows]
    padded = columns.new_zeros(len(mask), width)
    padded[rows, places] = columns
    return padded, torch.arange(width, device=mask.device) < counts[:, None]


def _penalise(
    chunk: _Chunk, penalty: Penalty, temperature: float, with_slopes: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return each query's loss (c,) and its gradients for the negatives (c, N) and the positives (c, P)."""
    negatives_before, slopes = _count_negatives(chunk, temperature, with_slopes)
    positives_before = torch.zeros_like(negatives_before)
    positive_slopes = None
    if penalty.counts_positives:
        positives_before, positive_slopes = _count_positives(chunk, temperature)
    counts = chunk.valid.sum(dim=1, keepdim=True).to(negatives_before.dtype)
    value, by_negatives_before, by_positives_before = penalty.evaluate(negatives_before, positives_before, counts)
    weight = chunk.valid / counts
    loss = (value * weight).sum(dim=1)
    if slopes is None:
        return loss, loss, loss
    per_rank = by_negatives_before * weight / temperature  # (c, P)
    by_positives = -per_rank * slopes.sum(dim=2)
    by_negatives = torch.bmm(per_rank[:, None, :], slopes)[:, 0, :]
    if positive_slopes is not None:
        per_rank = by_positives_before * weight / temperature
        by_positives += torch.bmm(per_rank[:, None, :], positive_slopes)[:, 0, :]
        by_positives -= per_rank * positive_slopes.sum(dim=2)
    return loss, by_negatives, by_positives


def _count_negatives(chunk: _Chunk, temperature: float, with_slopes: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return R (c, P), and G (1 - G) of every comparison (c, P, N), which is G's derivative times the temperature."""
    anchors = chunk.positives.masked_fill(~chunk.valid, math.inf)  # nothing ranks before padding
    ahead = torch.sub(chunk.negatives[:, None, :], anchors[:, :, None]).mul_(1 / temperature).sigmoid_()
    counts = ahead.sum(dim=2)
    return counts, torch.addcmul(ahead, ahead, ahead, value=-1, out=ahead) if with_slopes else None


def _count_positives(chunk: _Chunk, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return RP (c, P) and G (1 - G) of every comparison (c, P, P)."""
    anchors = chunk.positives.masked_fill(~chunk.valid, 0)
    ahead = torch.sub(anchors[:, None, :], anchors[:, :, None]).mul_(1 / temperature).sigmoid_()
    ahead.masked_fill_(~(chunk.valid[:, None, :] & chunk.valid[:, :, None]), 0)
    ahead.diagonal(dim1=1, dim2=2).zero_()
    counts = ahead.sum(dim=2)
    return counts, torch.addcmul(ahead, ahead, ahead, value=-1, out=ahead)
