"""SupRank: ROADMAP's bound for other measures of a ranking, nDCG and recall@k."""

from typing import Annotated, Literal

from tophit.losses.graded_rank import Score, average_precision, discounted_gain, recall_at
from tophit.losses.roadmap import RoadmapLoss
from tophit.options import AtLeastZero, Count, Doc, OnUnitVectors, Positive
from tophit.registry import register


@register("loss", "suprank", called=("sup-ndcg",))
class SupRankLoss(RoadmapLoss):
    """SupRank (Ramzi et al., "Optimization of Rank Losses for Image Retrieval", 2023): a bound of a chosen measure.

    (1 - weight) (1 - measure) + weight calibration, as ``RoadmapLoss``, which is ``measure="ap"``. The ranks that the
    measure is computed from are bounded from above, so the measure is bounded from below: ``discounted_gain`` (nDCG)
    and ``recall_at`` in ``graded_rank``. Use "ndcg" where the first places count most, "recall" for a first page.

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar.

    >>> import torch
    >>> SupRankLoss("recall", k=(1, 4))(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        measure: Annotated[Literal["ap", "ndcg", "recall"], Doc("What is bounded.")] = "ndcg",
        k: Annotated[tuple[Count, ...], Doc("Lengths of the ranking's head (for recall).", min_length=1)] = (
            1,
            2,
            4,
            8,
            16,
        ),
        rank_temperature: Annotated[Positive, Doc("Softness of counting a rank among the first k (for recall).")] = 1.0,
        temperature: Annotated[Positive, Doc("Softness of the step for negatives behind a positive.")] = 0.01,
        delta: Annotated[AtLeastZero, Doc("Lead of a negative from which the step is linear.")] = 0.05,
        slope: Annotated[Positive, Doc("Slope of the step beyond delta (the paper's rho).")] = 100.0,
        weight: Annotated[float, Doc("Weight of the calibration (the paper's lambda).", ge=0, le=1)] = 0.5,
        high: Annotated[float, Doc("Similarity that positives should reach.")] = 0.9,
        low: Annotated[float, Doc("Similarity that negatives should not exceed.")] = 0.6,
        include_self: Annotated[bool, Doc("A query is its own first positive, as in the authors' code.")] = True,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(temperature, delta, slope, weight, high, low, include_self, normalize)
        self.measure = measure
        self.k = k
        self.rank_temperature = rank_temperature

    @property
    def score(self) -> Score:
        """The measure that was chosen."""
        if self.measure == "recall":
            return recall_at(self.k, self.rank_temperature)
        return {"ap": average_precision, "ndcg": discounted_gain}[self.measure]
