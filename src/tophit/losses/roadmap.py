"""ROADMAP: average precision bounded from below, and similarities calibrated between batches."""

from typing import Annotated, Any

import torch

from tophit.losses.graded_rank import Own, Score, UpperStep, average_precision, graded_rank_loss
from tophit.losses.loss import eager
from tophit.losses.ranking_loss import Candidates, RankingLoss
from tophit.losses.similarity import similarity_matrix
from tophit.options import AtLeastZero, Doc, OnUnitVectors, Positive
from tophit.registry import register

_ROWS = 64  # of the similarity matrix looked at at a time, so that they stay in the processor's cache


@eager
def calibration(
    similarity: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, high: float, low: float
) -> torch.Tensor:
    """Return the mean of [high - s]+ over positive pairs plus that of [s - low]+ over negative ones.

    Each mean is over the pairs whose term is above 0, as in the authors' code. So similarities of positives and of
    negatives mean the same in every batch. Shapes: similarity and both masks (Q, N). Differentiable once.
    """
    return _Calibration.apply(similarity, positive, negative, high, low)  # type: ignore[return-value]


class _Calibration(torch.autograd.Function):
    """Keeps the similarities and both masks, and makes the gradient from them."""

    @staticmethod
    def forward(
        ctx: Any, similarity: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, high: float, low: float
    ) -> torch.Tensor:
        sums, counts = similarity.new_zeros(2), similarity.new_zeros(2)
        for start in range(0, len(similarity), _ROWS):
            part = slice(start, start + _ROWS)
            for kind, term in enumerate(_terms(similarity[part], positive[part], negative[part], high, low)):
                sums[kind] += term.sum()
                counts[kind] += torch.count_nonzero(term > 0)
        ctx.save_for_backward(similarity, positive, negative, counts.clamp(min=1))
        ctx.limits = high, low
        return (sums / counts.clamp(min=1)).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        similarity, positive, negative, counts = ctx.saved_tensors
        pull, push = (grad_outputs[0] / counts).unbind()
        gradient = torch.empty_like(similarity)
        for start in range(0, len(similarity), _ROWS):
            part = slice(start, start + _ROWS)
            pulled, pushed = _terms(similarity[part], positive[part], negative[part], *ctx.limits)
            gradient[part] = (pushed > 0) * push - (pulled > 0) * pull
        return gradient, None, None, None, None


def _terms(
    similarity: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, high: float, low: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return [high - s]+ of positive pairs and [s - low]+ of negative ones, 0 elsewhere."""
    return (high - similarity).clamp_(min=0).mul_(positive), (similarity - low).clamp_(min=0).mul_(negative)


def relevance_of(positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    """Return 1 for positives, 0 for negatives, and -1 for what is neither and so no candidate (Q, N), as bytes."""
    return positive.to(torch.int8) - (~(positive | negative)).to(torch.int8)


def own_result(queries: torch.Tensor, relevance: torch.Tensor) -> Own:
    """Return each query (Q, d) as a candidate of its own, of relevance (Q,)."""
    return Own((queries * queries).sum(dim=1), relevance)


@register("loss", "roadmap")
class RoadmapLoss(RankingLoss):
    """ROADMAP loss (Ramzi et al., NeurIPS 2021): (1 - weight) (1 - SupAP) + weight calibration.

    SupAP is a lower bound of average precision whose gradient does not vanish for negatives far ahead
    (``graded_rank_loss`` with relevances 0 and 1); ``calibration`` keeps similarities comparable between batches, which
    average precision alone does not.

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar, with the mean over queries with a positive.
    Embeddings are normalised unless ``normalize=False``. ``include_self`` counts each query as its own first positive,
    as the authors' code does. ``ref_emb`` and ``ref_labels`` are a memory to rank instead of the batch.

    Use it like ``SmoothAPLoss``, and where a cut-off on the similarity matters. ``SupRankLoss`` is its form for
    nDCG and recall@k, ``HAPPIERLoss`` for hierarchies.

    >>> loss = RoadmapLoss()
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        temperature: Annotated[Positive, Doc("Softness of the step for negatives behind a positive.")] = 0.01,
        delta: Annotated[AtLeastZero, Doc("Lead of a negative from which the step is linear.")] = 0.05,
        slope: Annotated[Positive, Doc("Slope of the step beyond delta (the paper's rho).")] = 100.0,
        weight: Annotated[float, Doc("Weight of the calibration (the paper's lambda).", ge=0, le=1)] = 0.5,
        high: Annotated[float, Doc("Similarity that positives should reach.")] = 0.9,
        low: Annotated[float, Doc("Similarity that negatives should not exceed.")] = 0.6,
        include_self: Annotated[bool, Doc("A query is its own first positive, as in the authors' code.")] = True,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.temperature = temperature
        self.delta = delta
        self.slope = slope
        self.weight = weight
        self.high = high
        self.low = low
        self.include_self = include_self

    @property
    def score(self) -> Score:
        """What the ranking is measured by."""
        return average_precision

    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the weighted sum of both terms."""
        x, y, positive, negative = given
        similarity = similarity_matrix(x, y)
        calibrated = calibration(similarity, positive, negative, self.high, self.low)
        has_positives = positive.any(dim=1)
        own = own_result(x, has_positives) if self.include_self else None
        step = UpperStep(self.temperature, self.delta, self.slope)
        losses = graded_rank_loss(similarity, relevance_of(positive, negative), step, self.score, own)
        ranked = losses.sum() / has_positives.sum().clamp(min=1)
        return (1 - self.weight) * ranked + self.weight * calibrated
