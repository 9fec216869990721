"""ROADMAP: average precision bounded from below, and similarities calibrated between batches."""

from typing import Annotated

import torch

from tophit.losses.graded_rank import Score, UpperStep, average_precision, graded_rank_loss
from tophit.losses.ranking_loss import Candidates, RankingLoss
from tophit.losses.similarity import similarity_matrix
from tophit.options import AtLeastZero, Doc, OnUnitVectors, Positive
from tophit.registry import register


def calibration(
    similarity: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, high: float, low: float
) -> torch.Tensor:
    """Return the mean of [high - s]+ over positive pairs plus that of [s - low]+ over negative ones.

    Each mean is over the pairs whose term is above 0, as in the authors' code. So similarities of positives and of
    negatives mean the same in every batch. Shapes: similarity and both masks (Q, N).
    """
    pull = torch.where(positive, (high - similarity).clamp(min=0), 0)
    push = torch.where(negative, (similarity - low).clamp(min=0), 0)
    return sum(((each.sum() / (each > 0).sum().clamp(min=1)) for each in (pull, push)), similarity.new_zeros(()))


def relevance_of(positive: torch.Tensor, negative: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return 1 for positives, 0 for negatives, and -1 for what is neither and so no candidate (Q, N)."""
    return positive.to(like.dtype) - (~(positive | negative)).to(like.dtype)


def with_self(
    similarity: torch.Tensor, relevance: torch.Tensor, queries: torch.Tensor, own: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both matrices with one more column: each query (Q, d) itself, of relevance ``own`` (Q,)."""
    similarity = torch.cat([similarity, (queries * queries).sum(dim=1, keepdim=True)], dim=1)
    return similarity, torch.cat([relevance, own[:, None]], dim=1)


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
        relevance, has_positives = relevance_of(positive, negative, similarity), positive.any(dim=1)
        if self.include_self:
            similarity, relevance = with_self(similarity, relevance, x, has_positives.to(similarity.dtype))
        losses = graded_rank_loss(
            similarity, relevance, UpperStep(self.temperature, self.delta, self.slope), self.score
        )
        ranked = losses.sum() / has_positives.sum().clamp(min=1)
        return (1 - self.weight) * ranked + self.weight * calibrated
