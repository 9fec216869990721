"""HAPPIER: average precision for hierarchies, in which some mistakes are worse than others."""

from typing import Annotated

import torch

from tophit.losses.graded_rank import UpperStep, graded_rank_loss
from tophit.losses.loss import Loss
from tophit.losses.ranking_loss import IndicesTuple, find_candidates
from tophit.losses.roadmap import own_result
from tophit.losses.similarity import similarity_matrix
from tophit.options import AtLeastZero, Doc, OnUnitVectors, Positive
from tophit.registry import register


def shared_levels(labels: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return how many first levels two paths have in common (Q, N), of labels (Q, L) and (N, L), coarse to fine."""
    same = labels[:, None, :] == others[None, :, :]
    return same.cumprod(dim=2).sum(dim=2)


def hierarchy_relevance(shared: torch.Tensor, levels: int, alpha: float, own: bool, dtype: torch.dtype) -> torch.Tensor:
    """Return the relevance (l / L)^alpha / |Omega_l| of candidates that share exactly l of L levels (Q, N).

    Omega_l are a query's candidates that share exactly l, and for l = L the query itself if ``own``. So each level has
    the same weight however many there are (HAPPIER, Eq. 3). -1 in ``shared`` marks what is no candidate, and stays.
    """
    relevance = shared.to(dtype).clamp(max=0)
    for level in range(1, levels + 1):
        at_level = shared == level
        count = at_level.sum(dim=1, keepdim=True) + (own and level == levels)
        relevance = torch.where(at_level, (level / levels) ** alpha / count.clamp(min=1).to(dtype), relevance)
    return relevance


@register("loss", "happier")
class HAPPIERLoss(Loss):
    """HAPPIER's ranking loss (Ramzi et al., ECCV 2022): one minus a smooth hierarchical average precision, Sup-H-AP.

    Labels are paths (N, L) of integers, from the coarsest level to the finest: a result of the same genus counts, but
    less than one of the same species, and must rank behind it. Also possible: labels (N,), which is one level; or a
    matrix (N, N) of relevances, floats of at least 0 such as graded judgements, taken as they are (its diagonal is
    ignored). For the equation see ``graded_rank``, for a path's relevance ``hierarchy_relevance``.

    Shapes: embeddings (N, d); returns a scalar, the mean over queries that have something relevant. Embeddings are
    normalised unless ``normalize=False``. ``include_self`` counts each query as its own first and most relevant result,
    as the authors' code does. ``ref_emb`` and ``ref_labels`` are a memory to rank instead of the batch.
    The paper adds a classifier of the finest classes, with a weight of 0.1; it is not part of this loss.

    Batches should hold several classes of a family. With one level it is the ranking part of ``RoadmapLoss``.

    >>> loss = HAPPIERLoss()
    >>> paths = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 1], [1, 2], [1, 2]])  # family, species
    >>> loss(torch.randn(6, 4), paths).shape
    torch.Size([])
    """

    takes_memory = True
    takes_paths = True

    def __init__(
        self,
        alpha: Annotated[
            AtLeastZero, Doc("How fast relevance falls with the level; 0: all levels count the same.")
        ] = 1,
        temperature: Annotated[Positive, Doc("Softness of the step for less relevant results behind.")] = 0.01,
        delta: Annotated[AtLeastZero, Doc("Lead of a less relevant result from which the step is linear.")] = 0.05,
        slope: Annotated[Positive, Doc("Slope of the step beyond delta (the paper's rho).")] = 100.0,
        include_self: Annotated[bool, Doc("A query is its own first result, as in the authors' code.")] = True,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__()
        self.alpha = alpha
        self.temperature = temperature
        self.delta = delta
        self.slope = slope
        self.include_self = include_self
        self.normalize = normalize

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        indices_tuple: IndicesTuple | None = None,
        ref_emb: torch.Tensor | None = None,
        ref_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with paths (N, L), labels (N,) or relevances (N, N)."""
        with torch.autocast(embeddings.device.type, enabled=False):
            count = len(embeddings if ref_emb is None else ref_emb)
            everything = labels.new_ones((len(embeddings), count), dtype=torch.bool)
            given = find_candidates(embeddings, everything, indices_tuple, ref_emb, None, self.normalize)
            return self._of_candidates(given.queries, given.candidates, given.positive, labels, ref_labels)

    def _of_candidates(
        self,
        queries: torch.Tensor,
        candidates: torch.Tensor,
        candidate: torch.Tensor,
        labels: torch.Tensor,
        ref_labels: torch.Tensor | None,
    ) -> torch.Tensor:
        similarity = similarity_matrix(queries, candidates)
        relevance, own = self._relevance(labels, ref_labels, candidate, similarity.dtype)
        has_relevant = (relevance > 0).any(dim=1)
        step = UpperStep(self.temperature, self.delta, self.slope)
        losses = graded_rank_loss(
            similarity, relevance, step, own=own_result(queries, own) if self.include_self else None
        )
        return losses.sum() / has_relevant.sum().clamp(min=1)

    def _relevance(
        self, labels: torch.Tensor, ref_labels: torch.Tensor | None, candidate: torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the relevances (Q, N), -1 for what is no candidate, and that of each query for itself (Q,)."""
        if labels.ndim == 2 and (labels.is_floating_point() or labels.dtype == torch.bool):
            if labels.shape != candidate.shape:
                raise ValueError(f"relevances must be {tuple(candidate.shape)}, got {tuple(labels.shape)}")
            relevance = torch.where(candidate, labels.to(candidate.device, dtype).clamp(min=0), -1)
            return relevance, relevance.max(dim=1).values if relevance.numel() else relevance.sum(dim=1)
        paths, others = (each[:, None] if each.ndim == 1 else each for each in (labels, _or(ref_labels, labels)))
        if (len(paths), len(others)) != tuple(candidate.shape) or paths.shape[1] != others.shape[1]:
            raise ValueError(
                f"labels must be paths ({candidate.shape[0]}, levels) and ({candidate.shape[1]}, levels), got "
                f"{tuple(paths.shape)} and {tuple(others.shape)}"
            )
        levels = paths.shape[1]
        shared = shared_levels(paths, others.to(paths.device)).to(candidate.device).masked_fill(~candidate, -1)
        relevance = hierarchy_relevance(shared, levels, self.alpha, self.include_self, dtype)
        return relevance, (1 + (shared == levels).sum(dim=1)).to(dtype).reciprocal()


def _or(given: torch.Tensor | None, otherwise: torch.Tensor) -> torch.Tensor:
    return otherwise if given is None else given
