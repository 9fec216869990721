"""Miners: from a batch's embeddings and labels to the triplets worth learning from."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from tophit.errors import UsageError
from tophit.losses.pairwise.tuples import Triplet, distance, squared_distances

# Distances looked at a time, where a pair is compared with all of the batch.
_CHUNK = 1 << 22


@torch.no_grad()
def mine(
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    strategy: str = "semi-hard",
    *,
    margin: float = 0.2,
    every: bool = False,
    cutoff: float = 0.5,
    farthest: float = 1.4,
    anchors: torch.Tensor | None = None,
    normalize: bool = True,
    generator: torch.Generator | None = None,
) -> Triplet:
    """Return triplets of a batch as three index tensors (T,): anchors, positives, negatives.

    With d the Euclidean distance, of unit vectors unless ``normalize=False``:

    - ``uniform``: each (anchor, positive) with a negative drawn at random.
    - ``hard``: each anchor with its farthest positive and its nearest negative.
    - ``semi-hard``: each (anchor, positive) with the nearest negative that is farther than the positive, but by no more
      than ``margin``: d(a, p)^2 < d(a, n)^2 <= d(a, p)^2 + margin. With ``every``, with all such negatives.
    - ``soft-hard``: each anchor with a random one of the positives that are farther than its nearest negative, and a
      random one of the negatives that are nearer than its farthest positive (Roth et al., ICML 2020).
    - ``distance-weighted``: each (anchor, positive) with a negative drawn so that all distances come equally often
      (Wu et al., ICCV 2017). Distances below ``cutoff`` count as that, negatives from ``farthest`` on are left out.
      Always on unit vectors: the density it corrects for is theirs.
    - ``balanced-hard``: each anchor with all its positives and as many nearest negatives, the m-th with the m-th: the
      hard mining of the PROFS paper (Sec. 5.3).

    Embeddings (N, d), labels (N,) any integers. An anchor or a pair without a valid negative is left out, so a batch
    may have no triplets at all. ``anchors`` restricts the anchors to these indices. Draws come from ``generator``, else
    from torch's seed. Ties go to the lower index. Time and memory are of the order of the distance matrix.

    >>> x, labels = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), torch.tensor([4, 4, 7])
    >>> mine(x, labels, "hard")
    (tensor([0, 1]), tensor([1, 0]), tensor([2, 2]))
    """
    if strategy not in STRATEGIES:
        raise UsageError(f"There is no mining strategy '{strategy}'; there are {', '.join(STRATEGIES)}.")
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise UsageError(
            f"Mining takes embeddings (N, d) and labels (N,), not {tuple(embeddings.shape)} and {tuple(labels.shape)}."
        )
    with torch.autocast(embeddings.device.type, enabled=False):
        x = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
        x = functional.normalize(x, dim=1) if normalize or strategy == "distance-weighted" else x
        rows = torch.arange(len(x), device=x.device) if anchors is None else anchors.to(x.device)
        settings = {
            "margin": margin,
            "every": every,
            "cutoff": cutoff,
            "farthest": farthest,
            "generator": generator,
        }
        if not len(x) or not len(rows):
            return rows[:0], rows[:0], rows[:0]
        found = [
            STRATEGIES[strategy](_Block(x, labels, part), **settings) for part in rows.split(max(1, _CHUNK // len(x)))
        ]
    a, p, n = (torch.cat(parts) for parts in zip(*found, strict=True))
    return a, p, n


class _Block:
    """Some anchors (A,) against the whole batch: squared distances and masks (A, N)."""

    def __init__(self, x: torch.Tensor, labels: torch.Tensor, anchors: torch.Tensor) -> None:
        self.x = x
        self.anchors = anchors
        same = labels[anchors][:, None] == labels[None, :]
        self.negative = ~same
        self.positive = same
        self.positive[torch.arange(len(anchors), device=x.device), anchors] = False

    def squared(self) -> torch.Tensor:
        """Return the squared distances (A, N) of the anchors to all."""
        return squared_distances(self.x[self.anchors], self.x)

    def triplets(self, rows: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> Triplet:
        """Return the triplets of the anchors in these rows of the block."""
        return self.anchors[rows], positives, negatives


def _uniform(block: _Block, generator: torch.Generator | None, **_: Any) -> Triplet:
    rows, positives = block.positive.nonzero(as_tuple=True)
    weights = block.negative.to(torch.float32)
    rows, positives, negatives = _draw(weights, rows, positives, generator)
    return block.triplets(rows, positives, negatives)


def _hard(block: _Block, **_: Any) -> Triplet:
    squared = block.squared()
    valid = (block.positive.any(dim=1) & block.negative.any(dim=1)).nonzero()[:, 0]
    farthest = _first_min(-squared[valid], block.positive[valid])
    nearest = _first_min(squared[valid], block.negative[valid])
    return block.triplets(valid, farthest, nearest)


def _semi_hard(block: _Block, margin: float, every: bool, **_: Any) -> Triplet:
    squared = block.squared()
    rows, positives = block.positive.nonzero(as_tuple=True)
    found = []
    for part, p in zip(*(t.split(max(1, _CHUNK // len(block.x))) for t in (rows, positives)), strict=True):
        near = squared[part, p][:, None]
        distances = squared[part]
        valid = block.negative[part] & (distances > near) & (distances <= near + margin)
        if every:
            pair, negatives = valid.nonzero(as_tuple=True)
        else:
            pair = valid.any(dim=1).nonzero()[:, 0]
            negatives = _first_min(distances[pair], valid[pair])
        found.append((part[pair], p[pair], negatives))
    return block.triplets(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _soft_hard(block: _Block, generator: torch.Generator | None, **_: Any) -> Triplet:
    squared = block.squared()
    nearest_negative = squared.masked_fill(~block.negative, math.inf).amin(dim=1, keepdim=True)
    farthest_positive = squared.masked_fill(~block.positive, -math.inf).amax(dim=1, keepdim=True)
    positives = block.positive & (squared > nearest_negative)
    negatives = block.negative & (squared < farthest_positive)
    valid = (positives.any(dim=1) & negatives.any(dim=1)).nonzero()[:, 0]
    p = _draw(positives.float(), valid, valid, generator)[2]
    n = _draw(negatives.float(), valid, valid, generator)[2]
    return block.triplets(valid, p, n)


def _distance_weighted(
    block: _Block, cutoff: float, farthest: float, generator: torch.Generator | None, **_: Any
) -> Triplet:
    d = distance(block.squared())
    dim = block.x.shape[1]
    far = d.clamp(min=cutoff, max=1.999)  # 2 is the diameter, where the density is 0
    # Minus the log of the density of distances between random points of the sphere (Wu et al., Sec. 4).
    log_weights = (2 - dim) * far.log() - (dim - 3) / 2 * (1 - far.square() / 4).log()
    allowed = block.negative & (d < farthest)
    log_weights = log_weights.masked_fill(~allowed, -math.inf)
    # Each anchor's own maximum: one for the whole batch would leave the others without a weight above 0.
    top = log_weights.amax(dim=1, keepdim=True)
    weights = torch.where(allowed, log_weights - top.clamp(min=torch.finfo(d.dtype).min), -math.inf).exp()
    rows, positives = block.positive.nonzero(as_tuple=True)
    return block.triplets(*_draw(weights, rows, positives, generator))


def _balanced_hard(block: _Block, **_: Any) -> Triplet:
    rows, positives = block.positive.nonzero(as_tuple=True)
    counts = block.positive.sum(dim=1)
    most = int(counts.max())
    place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    hardest = _nearest(block.squared().masked_fill(~block.negative, math.inf), most)
    enough = place < block.negative.sum(dim=1)[rows]
    rows, positives, place = rows[enough], positives[enough], place[enough]
    return block.triplets(rows, positives, hardest[rows, place])


def _nearest(distances: torch.Tensor, k: int) -> torch.Tensor:
    """Return the columns (A, k) of the k smallest of each row, in order; of equal values the lower column is first."""
    k = min(k, distances.shape[1])
    if k * 8 >= distances.shape[1]:
        return distances.argsort(dim=1, stable=True)[:, :k]
    values, columns = distances.topk(k + 1, dim=1, largest=False)
    tied = (values[:, 1:] == values[:, :-1]).any(dim=1)
    if bool(tied.any()):  # topk takes equal values in any order; such rows are few
        rows = tied.nonzero()[:, 0]
        columns[rows] = distances[rows].argsort(dim=1, stable=True)[:, : k + 1]
    return columns[:, :k]


def _first_min(values: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Return the first column of each row's least value among those that ``where`` selects."""
    chosen = values.masked_fill(~where, math.inf)
    least = chosen.amin(dim=1, keepdim=True)
    return ((chosen == least) & where).to(torch.uint8).argmax(dim=1)


def _draw(
    weights: torch.Tensor, rows: torch.Tensor, positives: torch.Tensor, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rows and positives with a column drawn by the weights (A, N) of each row; rows without any are left out.

    Drawn on the CPU from one uniform number each, so that a seed gives the same draws on every device.
    """
    sums = weights.cumsum(dim=1, dtype=torch.float64)
    drawable = (sums[:, -1] > 0)[rows]
    rows, positives = rows[drawable], positives[drawable]
    uniform = torch.rand(len(rows), generator=generator, dtype=torch.float64).to(weights.device)
    total = sums[rows, -1]
    targets = torch.minimum(uniform * total, total.nextafter(torch.zeros_like(total)))
    # The first column whose running sum passes the target: one with weight 0 never does.
    by_row, counts = _targets_by_row(rows, targets, len(weights))
    columns = torch.searchsorted(sums, by_row, right=True)
    return rows, positives, columns[rows, counts].clamp(max=weights.shape[1] - 1)


def _targets_by_row(rows: torch.Tensor, targets: torch.Tensor, height: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the targets as a matrix (height, most a row), padded with 0, and the column each went to."""
    order = rows.argsort(stable=True)
    counts = torch.bincount(rows, minlength=height)
    place = torch.empty_like(rows)
    place[order] = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows[order]]
    matrix = targets.new_zeros(height, int(counts.max()))
    matrix[rows, place] = targets
    return matrix, place


STRATEGIES: dict[str, Callable[..., Triplet]] = {
    "uniform": _uniform,
    "hard": _hard,
    "semi-hard": _semi_hard,
    "soft-hard": _soft_hard,
    "distance-weighted": _distance_weighted,
    "balanced-hard": _balanced_hard,
}
