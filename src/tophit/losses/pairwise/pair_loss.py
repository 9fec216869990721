"""What the pair losses have in common: which pairs or triplets they look at, distances, full precision."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch

from tophit.losses.loss import Loss
from tophit.losses.ranking_loss import Candidates, IndicesTuple, find_candidates
from tophit.losses.similarity import similarity_matrix

Pair = tuple[torch.Tensor, torch.Tensor]
Triplet = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

# Up to this many elements, chosen distances are computed from vector differences; beyond, the full matrix is smaller.
_DIRECT = 1 << 22


class Tuples(NamedTuple):
    """A batch and the tuples chosen in it: ``pairs``, ``triplets``, or neither, which means all of them.

    Anchors index the batch; the other members index the batch too, or the memory ``ref_emb`` if there is one.
    """

    batch: Candidates
    pairs: Pair | None
    triplets: Triplet | None


class PairLoss(Loss, ABC):
    """A loss over chosen pairs or triplets of a batch, or all of them; a subclass's equation is in ``compute``."""

    takes_memory = True
    takes_triplets = True
    takes_sets = True
    restriction = "triplets"

    def __init__(self, normalize: bool) -> None:
        super().__init__()
        self.normalize = normalize

    @abstractmethod
    def compute(self, tuples: Tuples) -> torch.Tensor:
        """Return the loss, a scalar, of a batch and the tuples chosen in it."""

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        indices_tuple: IndicesTuple | None = None,
        ref_emb: torch.Tensor | None = None,
        ref_labels: torch.Tensor | None = None,
        pairs: Pair | None = None,
        triplets: Triplet | None = None,
    ) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with labels (N,), in float32 at least."""
        with torch.autocast(embeddings.device.type, enabled=False):
            arguments = (embeddings, labels, indices_tuple, ref_emb, ref_labels, pairs, triplets)
            return self.compute(read_tuples(*arguments, self.normalize))

    def of_triplets(self, x: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor) -> torch.Tensor:
        """Return the loss of triplets (3, T) of rows of unit vectors x (N, d) with labels (N,)."""
        return self(x, labels, tuple(triplets))


def read_tuples(
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    indices_tuple: IndicesTuple | None,
    ref_emb: torch.Tensor | None,
    ref_labels: torch.Tensor | None,
    pairs: Pair | None,
    triplets: Triplet | None,
    normalize: bool,
) -> Tuples:
    """Return a loss's arguments in one form.

    ``indices_tuple`` is pytorch-metric-learning's: three tensors are triplets, four are the pairs (anchors, positives)
    and (anchors, negatives). At most one of ``indices_tuple``, ``pairs`` and ``triplets`` may be given.
    """
    if sum(given is not None for given in (indices_tuple, pairs, triplets)) > 1:
        raise ValueError("give only one of pairs, triplets and indices_tuple")
    batch = find_candidates(embeddings, labels, None, ref_emb, ref_labels, normalize)
    if indices_tuple is not None:
        if len(indices_tuple) == 3:
            triplets = indices_tuple
        elif len(indices_tuple) == 4:
            anchors, positives, others, negatives = indices_tuple
            pairs = torch.cat([anchors, others]), torch.cat([positives, negatives])
        else:
            raise ValueError(f"indices_tuple must be 3 tensors (a, p, n) or 4 (a, p, a, n), got {len(indices_tuple)}")
    device = embeddings.device
    return Tuples(
        batch,
        None if pairs is None else _indices("pairs", pairs, 2, device),  # type: ignore[arg-type]
        None if triplets is None else _indices("triplets", triplets, 3, device),  # type: ignore[arg-type]
    )


def _indices(name: str, given: Sequence[torch.Tensor], count: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    tensors = tuple(torch.as_tensor(part, device=device) for part in given)
    shapes = {tuple(part.shape) for part in tensors}
    if len(tensors) != count or len(shapes) != 1 or len(next(iter(shapes))) != 1:
        found = ", ".join(str(tuple(part.shape)) for part in tensors)
        raise ValueError(f"{name} must be {count} index tensors of the same length, got {found}")
    if any(part.is_floating_point() for part in tensors):
        raise ValueError(f"{name} must be index tensors of integers, got {', '.join(str(p.dtype) for p in tensors)}")
    if any(bool((part < 0).any()) for part in tensors):
        raise ValueError(f"{name} must be indices of at least 0, got {min(int(part.min()) for part in tensors)}")
    return tuple(part.long() for part in tensors)


def distance(squared: torch.Tensor) -> torch.Tensor:
    """Return the roots of squared distances; where the distance is 0, the gradient is 0 instead of infinite."""
    apart = ~(squared <= 0)  # NaN stays NaN
    return torch.where(apart, squared, 1).sqrt() * apart


def squared_distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the squared Euclidean distances (N, M) of x (N, d) and y (M, d), with one matrix product."""
    x_norms = (x * x).sum(dim=1)
    y_norms = x_norms if y is x else (y * y).sum(dim=1)
    return (x_norms[:, None] + y_norms[None, :] - 2 * similarity_matrix(x, y)).clamp(min=0)


def squared_distances_of(batch: Candidates, *ends: Pair) -> list[torch.Tensor]:
    """Return the squared distances of chosen pairs, each (P,); several lists of pairs share one matrix."""
    x, y = batch.queries, batch.candidates
    if sum(len(i) for i, _ in ends) * x.shape[1] <= _DIRECT:
        return [(x[i] - y[j]).square().sum(dim=1) for i, j in ends]
    matrix = squared_distances(x, y)
    return [matrix[i, j] for i, j in ends]


def pair_distances(tuples: Tuples) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the distances (P,) of the chosen pairs and which of them are within one class (P,).

    Without a choice, all unordered pairs of the batch count. A triplet is two pairs, (a, p) and (a, n).
    """
    batch, pairs, triplets = tuples
    if triplets is not None:
        anchors, positives, negatives = triplets
        pairs = torch.cat([anchors, anchors]), torch.cat([positives, negatives])
    if pairs is not None:
        (squared,) = squared_distances_of(batch, pairs)
        return distance(squared), ~batch.negative[pairs]
    chosen = torch.ones_like(batch.negative)
    if batch.candidates is batch.queries:
        chosen = chosen.triu_(diagonal=1)
    squared = squared_distances(batch.queries, batch.candidates)[chosen]
    return distance(squared), ~batch.negative[chosen]


def masks(tuples: Tuples) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which pairs (N, M) count as positive and as negative."""
    batch, pairs, triplets = tuples
    if triplets is not None:
        anchors, positives, negatives = triplets
        pairs = torch.cat([anchors, anchors]), torch.cat([positives, negatives])
    if pairs is None:
        return batch.positive, batch.negative
    chosen = torch.zeros_like(batch.positive)
    chosen[pairs] = True
    return batch.positive & chosen, batch.negative & chosen


def mean_or_zero(terms: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return the mean of the terms; without any, a zero that supports backward."""
    return terms.mean() if len(terms) else x.sum() * 0
