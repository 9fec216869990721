"""Blackbox AP: exact ranks, with gradients by blackbox differentiation."""

import math
from typing import Annotated, Any, Literal

import torch

from tophit.losses.loss import eager
from tophit.losses.ranking_loss import Candidates, RankingLoss
from tophit.losses.similarity import similarity_matrix
from tophit.options import AtLeastZero, Doc, OnUnitVectors, Positive
from tophit.registry import register

Measure = Literal["ap", "recall"]


def ranks(scores: torch.Tensor) -> torch.Tensor:
    """Return the rank of every score in its row (Q, N), 1 for the largest; of equal ones the lower column is first."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    places = torch.arange(1, scores.shape[1] + 1, device=scores.device, dtype=scores.dtype)
    return torch.empty_like(scores).scatter_(1, order, places.expand_as(scores))


def rank_losses(
    rank: torch.Tensor, among_positives: torch.Tensor, positive: torch.Tensor, measure: Measure
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each query's loss (Q,) of the ranks of its positives, and its derivative by the ranks (Q, N).

    With i over the positives P, rk_i the rank among all and rk+_i the rank among the positives, whose own gradient is
    left out (Rolinek et al., CVPR 2020):

        ap:      1 - mean_i rk+_i / rk_i
        recall:  mean_i log(1 + log(1 + rk_i - rk+_i))

    0 for a query without positives. Shapes: all (Q, N).
    """
    share = positive.to(rank.dtype) / positive.sum(dim=1, keepdim=True).clamp(min=1)
    if measure == "ap":
        value, slope = 1 - among_positives / rank, among_positives / rank**2
    else:
        wrong = torch.where(positive, rank - among_positives, 0)
        inner = torch.log1p(wrong)
        value, slope = torch.log1p(inner), 1 / ((1 + inner) * (1 + wrong))
    return (value * share).sum(dim=1), slope * share


@eager
def blackbox_ranking(
    similarity: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    interpolation: float,
    margin: float,
    measure: Measure,
) -> torch.Tensor:
    """Return the mean loss of the ranks over the queries that have a positive.

    While training, positives rank margin / 2 lower and negatives margin / 2 higher. The gradient is that of a
    piecewise linear interpolation (Vlastelica et al., ICLR 2020): with L a query's loss, y its shifted similarities
    and rk(y) their ranks,

        dL/dy = -1/lambda (rk(y) - rk(y + lambda dL/drk))

    Shapes: similarity and both masks (Q, N).
    """
    arguments = (positive, negative, interpolation, margin, measure)
    return _BlackboxRanking.apply(similarity, *arguments)  # type: ignore[return-value]


class _BlackboxRanking(torch.autograd.Function):
    """The gradient is computed with the loss: a scaled loss has the scaled gradient, with the same interpolation."""

    @staticmethod
    def forward(
        ctx: Any,
        similarity: torch.Tensor,
        positive: torch.Tensor,
        negative: torch.Tensor,
        interpolation: float,
        margin: float,
        measure: Measure,
    ) -> torch.Tensor:
        shift = margin / 2 * (negative.to(similarity.dtype) - positive.to(similarity.dtype))
        scores = (similarity + shift).masked_fill(~(positive | negative), -math.inf)  # neither: behind all others
        rank = ranks(scores)
        among_positives = ranks(scores.masked_fill(~positive, -math.inf))
        losses, by_rank = rank_losses(rank, among_positives, positive, measure)
        queries = positive.any(dim=1).sum().clamp(min=1)
        if ctx.needs_input_grad[0]:
            moved = ranks(scores + interpolation * by_rank)
            ctx.save_for_backward((moved - rank) / (interpolation * queries))
        # NaN has a rank as well, but must show.
        return losses.sum() / queries + torch.where(similarity.isnan().any(), torch.nan, 0.0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad_outputs[0], None, None, None, None, None


@register("loss", "blackbox-ap")
class BlackboxAPLoss(RankingLoss):
    """Blackbox AP (Rolinek et al., CVPR 2020, "Optimizing rank-based metrics with blackbox differentiation").

    The loss is exact: one minus the mean average precision (``measure="ap"``), or a slowly growing penalty of the
    number of negatives before each positive (``"recall"``); for both see ``rank_losses``. Ranks have no gradient;
    ``blackbox_ranking`` says what stands for it.

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar, the mean over queries with a positive.
    ``interpolation`` is the paper's lambda: how far similarities are moved along the gradient of the ranks before they
    are ranked again. The paper's retrieval runs use 4 and a margin of 0.02. It is applied to each query's own loss; the
    authors' code differentiates a batch's mean by ranks divided by their number, which is the same where a batch ranks
    itself. Embeddings are normalised unless ``normalize=False``. ``ref_emb`` and ``ref_labels`` are a memory to rank
    instead of the batch.

    Not in it: the paper's similarities between classes of earlier batches (its beta); a memory of batches plays that
    part. ``SmoothAPLoss`` softens the counts instead, and has a true gradient.

    >>> loss = BlackboxAPLoss()
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        interpolation: Annotated[Positive, Doc("The paper's lambda: how far ranks are interpolated.")] = 4.0,
        margin: Annotated[AtLeastZero, Doc("Similarity by which positives must lead.")] = 0.02,
        measure: Annotated[Literal["ap", "recall"], Doc("Average precision, or the penalty behind recall.")] = "ap",
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.interpolation = interpolation
        self.margin = margin
        self.measure: Measure = measure

    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the mean over queries that have a positive."""
        x, y, positive, negative = given
        similarity = similarity_matrix(x, y)
        return blackbox_ranking(similarity, positive, negative, self.interpolation, self.margin, self.measure)
