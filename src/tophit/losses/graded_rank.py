"""Average precision with graded relevance, softened from above: the core of ROADMAP and HAPPIER.

For a query, s_i are the similarities and r_i >= 0 the relevances of its candidates; H is the step function, and h a
smooth function that is never below it. For each i with r_i > 0:

    rank_i  = sum_{j: r_j >= r_i} H(s_j - s_i)  +  sum_{j: r_j < r_i} h(s_j - s_i)
    Hrank_i = sum_j min(r_i, r_j) H(s_j - s_i)                       (j = i included in both)
    H-AP    = 1 / sum_i r_i  sum_i Hrank_i / rank_i                  (Ramzi et al., ECCV 2022)

Only h is differentiated: it moves what is less relevant behind what is more. With relevances 0 and 1, H-AP is SupAP
(Ramzi et al., NeurIPS 2021), a lower bound of average precision. Chunks of queries are evaluated with their gradient
in one pass, as in ``soft_rank``: time Q x P x N, memory Q x N.
"""

import math
from typing import Any, NamedTuple

import torch

from tophit.losses.loss import eager
from tophit.losses.soft_rank import padded_columns, query_chunks

_MATRICES = 6  # of comparisons that are alive at a time


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
        soft = torch.sigmoid(x / self.temperature)
        far = x > self.delta
        top = 1 / (1 + math.exp(-self.delta / self.temperature)) + 0.5
        value = torch.where(far, self.slope * (x - self.delta) + top, soft + 0.5 * (x > 0))
        return value, torch.where(far, self.slope, soft * (1 - soft) / self.temperature)


@eager
def graded_ap_loss(similarity: torch.Tensor, relevance: torch.Tensor, step: UpperStep) -> torch.Tensor:
    """Return 1 - H-AP of each query (Q,); 0 for a query that has nothing relevant.

    ``similarity`` and ``relevance`` are (Q, N); a negative relevance marks what is no candidate. Differentiable once,
    in similarity.
    """
    return _GradedAP.apply(similarity, relevance, step)  # type: ignore[return-value]


class _GradedAP(torch.autograd.Function):
    """Keeps one matrix for the backward pass: the gradient of each query's loss with respect to its similarities."""

    @staticmethod
    def forward(ctx: Any, similarity: torch.Tensor, relevance: torch.Tensor, step: UpperStep) -> torch.Tensor:
        losses = similarity.new_zeros(len(similarity))
        gradient = torch.zeros_like(similarity)
        scores = similarity.masked_fill(relevance < 0, -math.inf)
        for queries in query_chunks(relevance > 0, _MATRICES):
            losses[queries], gradient[queries] = _of_chunk(scores[queries], relevance[queries], step)
        ctx.save_for_backward(gradient)
        return losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0][:, None], None, None


def _of_chunk(scores: torch.Tensor, relevance: torch.Tensor, step: UpperStep) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses (c,) of queries and their gradients (c, N)."""
    columns, valid = padded_columns(relevance > 0)
    own = relevance.gather(1, columns).masked_fill(~valid, 0)[:, :, None]
    anchors = scores.gather(1, columns).masked_fill(~valid, math.inf)[:, :, None]
    ahead = scores[:, None, :] - anchors  # (c, P, N)
    less = relevance[:, None, :] < own
    step_value, step_slope = step.evaluate(ahead)
    passed = (ahead >= 0).to(scores.dtype)
    rank = torch.where(less, step_value, passed).sum(dim=2)
    graded_rank = (torch.minimum(relevance[:, None, :], own) * passed).sum(dim=2)
    share = valid / own.sum(dim=1)
    rank = torch.where(valid, rank, 1)
    losses = 1 - (graded_rank / rank * share).sum(dim=1)
    by_pairs = (graded_rank / rank**2 * share)[:, :, None] * torch.where(less, step_slope, 0)
    return losses, by_pairs.sum(dim=1).scatter_add_(1, columns, -by_pairs.sum(dim=2))
