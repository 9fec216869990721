"""Scores of a ranking with graded relevance, softened from above: the core of ROADMAP, SupRank and HAPPIER.

For a query, s_i are the similarities and r_i >= 0 the relevances of its candidates; H is the step function, and h a
smooth function that is never below it. For each i with r_i > 0:

    rank_i  = sum_{j: r_j >= r_i} H(s_j - s_i)  +  sum_{j: r_j < r_i} h(s_j - s_i)
    Hrank_i = sum_j min(r_i, r_j) H(s_j - s_i)                       (j = i included in both)

A score is a sum over i of a function of these, such as H-AP (``average_precision``), nDCG or recall@k. Only h is
differentiated: it moves what is less relevant behind what is more. As h is never below the step, a score that falls
with the rank is a lower bound of the true one. Chunks of queries are evaluated with their gradient in one pass, as in
``soft_rank``: time Q x P x N, memory Q x N. Grades are compared only among the P relevant ones, which are few: of the
irrelevant candidates it is enough that all are less relevant than any of these.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tophit.losses.loss import eager
from tophit.losses.soft_rank import padded_columns, query_chunks

_MATRICES = 3  # of comparisons that are alive at a time


class UpperStep(NamedTuple):
    """The smooth step h of x = s_j - s_i (ROADMAP's H-), which stays above the step function:

        x <= 0: G(x)      0 < x <= delta: G(x) + 1/2      x > delta: slope (x - delta) + G(delta) + 1/2

    with G(x) = 1 / (1 + exp(-x / temperature)). Beyond delta its gradient does not vanish.
    """  # noqa: D400

    temperature: float = 0.01
    delta: float = 0.05
    slope: float = 100.0

    def evaluate(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the value and the derivative, elementwise."""
        soft = torch.sigmoid(x.clamp(max=self.delta) / self.temperature)
        value = soft + 0.5 * (x > 0) + self.slope * (x - self.delta).clamp(min=0)
        return value, torch.where(x > self.delta, self.slope, soft * (1 - soft) / self.temperature)

    def summed(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sums of the values over the last dimension, and the derivatives in place of ``x``."""
        beyond = x - self.delta
        far = beyond > 0
        value = self.slope * beyond.clamp_(min=0).sum(dim=-1)
        value += 0.5 * torch.gt(x, 0, out=beyond).sum(dim=-1)
        soft = x.clamp_(max=self.delta).mul_(1 / self.temperature).sigmoid_()
        value += soft.sum(dim=-1)
        return value, soft.addcmul_(soft, soft, value=-1).mul_(1 / self.temperature).masked_fill_(far, self.slope)


class Ranks(NamedTuple):
    """The ranks of c queries' relevant candidates (c, P); padding has relevance 0 and rank 1."""

    rank: torch.Tensor
    graded: torch.Tensor  # Hrank
    relevance: torch.Tensor


Score = Callable[[Ranks], tuple[torch.Tensor, torch.Tensor]]
"""What each relevant candidate adds to its query's score (c, P), 0 for padding; and its derivative by the rank."""


def average_precision(ranks: Ranks) -> tuple[torch.Tensor, torch.Tensor]:
    """H-AP = 1 / sum_i r_i  sum_i Hrank_i / rank_i (Ramzi et al., ECCV 2022); with relevances 0 and 1, SupAP."""
    share = (ranks.relevance > 0) / ranks.relevance.sum(dim=1, keepdim=True)
    value = ranks.graded / ranks.rank * share
    return value, -value / ranks.rank


def discounted_gain(ranks: Ranks) -> tuple[torch.Tensor, torch.Tensor]:
    """Sup-nDCG = sum_i g_i / log2(1 + rank_i), with gains g_i = 2^r_i - 1, divided by that of the best order."""
    gain = torch.exp2(ranks.relevance) - 1
    best = gain.sort(dim=1, descending=True).values
    places = torch.arange(1, gain.shape[1] + 1, device=gain.device, dtype=gain.dtype)
    gain = gain / (best / torch.log2(1 + places)).sum(dim=1, keepdim=True)
    discount = torch.log2(1 + ranks.rank)
    return gain / discount, -gain / (discount.square() * (1 + ranks.rank) * math.log(2))


def recall_at(k: Sequence[int], temperature: float) -> Score:
    """Sup-R@k: the mean over k of 1 / min(k, P) sum_i sigmoid((k - rank_i) / temperature), over the P relevant."""

    def score(ranks: Ranks) -> tuple[torch.Tensor, torch.Tensor]:
        relevant = (ranks.relevance > 0).to(ranks.rank.dtype)
        count = relevant.sum(dim=1, keepdim=True)
        value, slope = torch.zeros_like(ranks.rank), torch.zeros_like(ranks.rank)
        for each in k:
            found = torch.sigmoid((each - ranks.rank) / temperature)
            share = relevant / count.clamp(max=each) / len(k)
            value += share * found
            slope -= share * found * (1 - found) / temperature
        return value, slope

    return score


class Own(NamedTuple):
    """Each query as one more candidate of its own: its similarity to itself (Q,) and its relevance (Q,)."""

    similarity: torch.Tensor
    relevance: torch.Tensor


@eager
def graded_rank_loss(
    similarity: torch.Tensor,
    relevance: torch.Tensor,
    step: UpperStep,
    score: Score = average_precision,
    own: Own | None = None,
) -> torch.Tensor:
    """Return 1 - score of each query (Q,); 0 for a query that has nothing relevant besides itself.

    ``similarity`` (Q, N) and ``relevance`` (Q, N), numbers of any type; a negative relevance marks what is no
    candidate. Differentiable once, in similarity and in that of ``own``.
    """
    own_similarity, own_relevance = (None, None) if own is None else own
    return _GradedRankLoss.apply(  # type: ignore[return-value]
        similarity, own_similarity, relevance, own_relevance, step, score
    )


class _GradedRankLoss(torch.autograd.Function):
    """Keeps one matrix for the backward pass: the gradient of each query's loss with respect to its similarities."""

    @staticmethod
    def forward(
        ctx: Any,
        similarity: torch.Tensor,
        own_similarity: torch.Tensor | None,
        relevance: torch.Tensor,
        own_relevance: torch.Tensor | None,
        step: UpperStep,
        score: Score,
    ) -> torch.Tensor:
        losses = similarity.new_zeros(len(similarity))
        gradient = torch.zeros_like(similarity)
        by_own = None if own_similarity is None else torch.zeros_like(own_similarity)
        for queries in query_chunks(relevance > 0, _MATRICES):
            scores, grades = similarity[queries], relevance[queries].to(similarity.dtype)
            if own_similarity is not None and own_relevance is not None:
                scores = torch.cat([scores, own_similarity[queries, None]], dim=1)
                grades = torch.cat([grades, own_relevance[queries, None].to(grades.dtype)], dim=1)
            scores.masked_fill_(grades < 0, -math.inf)
            losses[queries], by_scores = _of_chunk(scores, grades, step, score)
            if by_own is not None:
                by_own[queries], by_scores = by_scores[:, -1], by_scores[:, :-1]
            gradient[queries] = by_scores
        ctx.save_for_backward(gradient, by_own)
        return losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        gradient, by_own = ctx.saved_tensors
        (grad,) = grad_outputs
        return gradient * grad[:, None], None if by_own is None else by_own * grad, None, None, None, None


def _of_chunk(
    scores: torch.Tensor, relevance: torch.Tensor, step: UpperStep, score: Score
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses (c,) of queries and their gradients (c, N)."""
    columns, valid = padded_columns(relevance > 0)
    own = relevance.gather(1, columns).masked_fill(~valid, 0)
    relevant = scores.gather(1, columns)
    anchors = relevant.masked_fill(~valid, math.inf)  # nothing is ahead of padding
    others = scores.masked_fill(relevance > 0, -math.inf)
    rank, slopes = step.summed(others[:, None, :] - anchors[:, :, None])  # (c, P), (c, P, N)

    ahead = relevant.masked_fill(~valid, -math.inf)[:, None, :] - anchors[:, :, None]  # (c, P, P)
    less = own[:, None, :] < own[:, :, None]
    value, relevant_slopes = step.evaluate(ahead)
    passed = (ahead >= 0).to(scores.dtype)
    rank = rank + torch.where(less, value, passed).sum(dim=2)
    graded = (torch.minimum(own[:, None, :], own[:, :, None]) * passed).sum(dim=2)

    value, slope = score(Ranks(torch.where(valid, rank, 1), graded, own))
    by_others = torch.bmm(-slope[:, None, :], slopes)[:, 0, :]
    by_relevant = -slope[:, :, None] * torch.where(less, relevant_slopes, 0)
    behind = slope * slopes.sum(dim=2) - by_relevant.sum(dim=2)
    return 1 - value.sum(dim=1), by_others.scatter_add_(1, columns, by_relevant.sum(dim=1) + behind)
