"""Miners: from a batch's embeddings and labels to the triplets worth learning from.

A miner is a function from embeddings (N, d) and labels (N,) to three index tensors, or to the four of
pytorch-metric-learning. The miners here process one block of anchors at a time.
"""

import math
from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Annotated, Any

import torch
from torch.nn import functional

from tophit.errors import UsageError
from tophit.losses.pairwise.pair_loss import Triplet
from tophit.options import Doc, Positive
from tophit.registry import find, register

# Distances processed at a time, where a pair is compared with the whole batch.
_CHUNK = 1 << 22


def mine(
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    strategy: str = "semi-hard",
    *,
    margin: float | None = None,
    every: bool | None = None,
    cutoff: float | None = None,
    farthest: float | None = None,
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
    - ``distance-weighted``: each (anchor, positive) with a negative drawn so that all distances are equally likely
      (Wu et al., ICCV 2017). Distances below ``cutoff`` count as ``cutoff``; negatives at ``farthest`` or beyond are
      left out. Always on unit vectors: the density it corrects for holds only for them.
    - ``balanced-hard``: each anchor with all its positives and the same number of nearest negatives, the m-th with the
      m-th: the hard mining of the PROFS paper (Sec. 5.3).

    Embeddings (N, d), labels (N,) any integers. An anchor or a pair without a valid negative is left out, so a batch
    may have no triplets at all. ``anchors`` restricts the anchors to these indices. Draws come from ``generator`` or
    torch's default one. Ties go to the lower index. Time and memory are of the order of the distance matrix. Settings
    that are not given take the strategy's defaults.

    >>> x, labels = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]), torch.tensor([4, 4, 7])
    >>> mine(x, labels, "hard")
    (tensor([0, 1]), tensor([1, 0]), tensor([2, 2]))
    """
    entry = find("miner", strategy)
    given = {"margin": margin, "every": every, "cutoff": cutoff, "farthest": farthest}
    settings = {name: value for name, value in given.items() if value is not None and name in entry.options}
    return entry.load()(embeddings, labels, anchors=anchors, normalize=normalize, generator=generator, **settings)


def _by_blocks(look_at: Callable[..., Triplet], on_unit_vectors: bool = False) -> Callable[..., Triplet]:
    """Turn a function that finds the triplets of some anchors into a miner, optionally always on unit vectors."""
    draws = "generator" in signature(look_at).parameters

    @wraps(look_at)
    def miner(
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        *,
        anchors: torch.Tensor | None = None,
        normalize: bool = True,
        generator: torch.Generator | None = None,
        **settings: Any,
    ) -> Triplet:
        _check(embeddings, labels)
        with torch.no_grad(), torch.autocast(embeddings.device.type, enabled=False):
            x = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
            x = functional.normalize(x, dim=1) if normalize or on_unit_vectors else x
            rows = torch.arange(len(x), device=x.device) if anchors is None else anchors.to(x.device)
            if not len(x) or not len(rows):
                return rows[:0], rows[:0], rows[:0]
            settings |= {"generator": generator} if draws else {}
            blocks = rows.split(max(1, _CHUNK // len(x)))
            found = [look_at(_Block(x, labels, part), **settings) for part in blocks]
        a, p, n = (torch.cat(parts) for parts in zip(*found, strict=True))
        return a, p, n

    return miner


def _check(embeddings: torch.Tensor, labels: torch.Tensor) -> None:
    if not isinstance(embeddings, torch.Tensor) or not isinstance(labels, torch.Tensor):
        kinds = f"{type(embeddings).__name__} and {type(labels).__name__}"
        raise UsageError(f"Mining takes tensors, not {kinds}; convert an array with torch.as_tensor.")
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise UsageError(
            f"Mining takes embeddings (N, d) and labels (N,), not {tuple(embeddings.shape)} and {tuple(labels.shape)}."
        )


class _Block:
    """Some anchors (A,) against the whole batch; a row of the block is one anchor.

    ``rows`` and ``positives`` (P,) list the positive pairs, row by row, positives in the order of the batch.
    """

    def __init__(self, x: torch.Tensor, labels: torch.Tensor, anchors: torch.Tensor) -> None:
        self.x = x
        self.anchors = anchors
        # Each class is contiguous in the sorted batch, so its members are found without comparing all with all.
        classes, counts = labels.unique(return_inverse=True, return_counts=True)[1:]
        self.order = classes.argsort(stable=True)
        self.counts = counts[classes[anchors]]
        self.starts = (counts.cumsum(0) - counts)[classes[anchors]]
        every = torch.arange(len(anchors), device=x.device)
        self._own_rows = every.repeat_interleave(self.counts)
        ends = self.counts.cumsum(0)
        places = torch.arange(len(self._own_rows), device=x.device) - (ends - self.counts)[self._own_rows]
        self._own = self.order[self.starts[self._own_rows] + places]
        others = self._own != anchors[self._own_rows]
        self.rows, self.positives = self._own_rows[others], self._own[others]
        self.has_negatives = self.counts < len(x)

    def squared(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return squared distances: of the positive pairs (P,), and of all pairs (A, N), infinite within a class."""
        own = self.x[self.anchors]
        norms = self.x.square().sum(dim=1)
        squared = torch.addmm(norms, own, self.x.T, alpha=-2).add_(norms[self.anchors][:, None]).clamp_(min=0)
        near = squared[self.rows, self.positives]
        squared[self._own_rows, self._own] = math.inf
        return near, squared

    def by_row(self, values: torch.Tensor, fill: float) -> torch.Tensor:
        """Return values of the positive pairs (P,) as a matrix (A, most positives), padded."""
        places = torch.arange(int(self.counts.max()) - 1, device=values.device)
        matrix = values.new_full((len(self.anchors), len(places)), fill)
        matrix[places < self.counts[:, None] - 1] = values
        return matrix

    def triplets(self, rows: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> Triplet:
        """Return the triplets of the anchors in these rows of the block."""
        return self.anchors[rows], positives, negatives


@register("miner", "none")
def no_miner(embeddings: torch.Tensor, labels: torch.Tensor) -> None:
    """All pairs or triplets: nothing is mined."""


@register("miner", "uniform")
@_by_blocks
def uniform(block: _Block, generator: torch.Generator | None) -> Triplet:
    """Each positive pair with a random negative."""
    drawable = block.has_negatives[block.rows]
    rows, positives = block.rows[drawable], block.positives[drawable]
    counts, starts = block.counts[rows], block.starts[rows]
    drawn = torch.rand(len(rows), generator=generator, dtype=torch.float64).to(rows.device)
    place = (drawn * (len(block.x) - counts)).long()
    return block.triplets(rows, positives, block.order[torch.where(place < starts, place, place + counts)])


@register("miner", "hard")
@_by_blocks
def hard(block: _Block) -> Triplet:
    """Each anchor's farthest positive and nearest negative."""
    near, squared = block.squared()
    valid = (block.has_negatives & (block.counts > 1)).nonzero()[:, 0]
    if not len(valid):
        return block.triplets(valid, valid, valid)
    farthest = block.by_row(near, -math.inf).argmax(dim=1)
    positives = block.by_row(block.positives, 0)
    return block.triplets(valid, positives[valid, farthest[valid]], _first_min(squared)[valid])


@register("miner", "semi-hard")
@_by_blocks
def semi_hard(
    block: _Block,
    margin: Annotated[Positive, Doc("How much farther the negative may be, in squared distance.")] = 0.2,
    every: Annotated[bool, Doc("Use all such negatives of a pair, not only the nearest.")] = False,
) -> Triplet:
    """Negatives just farther than the positive."""
    near, squared = block.squared()
    found = []
    size = max(1, _CHUNK // len(block.x))
    parts = (tensor.split(size) for tensor in (block.rows, block.positives, near))
    for rows, positives, closest in zip(*parts, strict=True):
        distances = squared[rows]
        outside = (distances <= closest[:, None]) | (distances > closest[:, None] + margin)
        if every:
            pair, negatives = (~outside).nonzero(as_tuple=True)
        else:
            pair = (~outside).any(dim=1).nonzero()[:, 0]
            negatives = _first_min(distances.masked_fill_(outside, math.inf))[pair]
        found.append((rows[pair], positives[pair], negatives))
    return block.triplets(*(torch.cat(parts) for parts in zip(*found, strict=True)))


@register("miner", "soft-hard")
@_by_blocks
def soft_hard(block: _Block, generator: torch.Generator | None) -> Triplet:
    """Each anchor with a random hard positive and a random hard negative."""
    near, squared = block.squared()
    if not len(block.rows):
        return block.triplets(block.rows, block.rows, block.rows)
    nearest_negative = squared.amin(dim=1)
    farthest_positive = block.by_row(near, -math.inf).amax(dim=1)
    hard_positives = block.by_row((near > nearest_negative[block.rows]).float(), 0)
    hard_negatives = (squared < farthest_positive[:, None]).float()
    valid = (hard_positives.any(dim=1) & hard_negatives.any(dim=1)).nonzero()[:, 0]
    places = _draw(hard_positives, valid, generator)
    positives = block.by_row(block.positives, 0)[valid, places]
    return block.triplets(valid, positives, _draw(hard_negatives, valid, generator))


@register("miner", "distance-weighted")
@partial(_by_blocks, on_unit_vectors=True)
def distance_weighted(
    block: _Block,
    generator: torch.Generator | None,
    cutoff: Annotated[float, Doc("Smaller distances count as this one.", gt=0, lt=2)] = 0.5,
    farthest: Annotated[float, Doc("Negatives at this distance or beyond are left out.", gt=0, le=2)] = 1.4,
) -> Triplet:
    """Negatives from all distances equally often."""
    squared = block.squared()[1]
    dim = block.x.shape[1]
    far = squared.clamp(min=cutoff**2, max=3.99)  # 4 is the diameter's square, where the density is 0
    # Minus the log of the density of distances between random points of the sphere (Wu et al., Sec. 4).
    log_weights = far.log().mul_((2 - dim) / 2).sub_(far.div(-4).log1p_().mul_((dim - 3) / 2))
    log_weights.masked_fill_(squared >= farthest**2, -math.inf)
    # Subtract each anchor's own maximum: with one for the whole batch, other anchors could end up with zero weights.
    top = log_weights.amax(dim=1, keepdim=True)
    weights = log_weights.sub_(top.masked_fill(top.isinf(), 0)).exp_()
    drawable = top[:, 0].isfinite()[block.rows]
    rows = block.rows[drawable]
    return block.triplets(rows, block.positives[drawable], _draw(weights, rows, generator))


@register("miner", "balanced-hard")
@_by_blocks
def balanced_hard(block: _Block) -> Triplet:
    """All positives, and the same number of nearest negatives: the hard mining of the PROFS paper."""
    most = int(block.counts.max()) - 1
    places = torch.arange(most, device=block.rows.device).expand(len(block.anchors), most)
    place = places[places < block.counts[:, None] - 1]  # of each pair among the pairs of its row
    hardest = _nearest(block.squared()[1], most)
    enough = place < (len(block.x) - block.counts)[block.rows]
    rows, place = block.rows[enough], place[enough]
    return block.triplets(rows, block.positives[enough], hardest[rows, place])


def _first_min(values: torch.Tensor) -> torch.Tensor:
    """Return the first column of each row's minimum. torch's argmin is slow on CPUs; elsewhere ties are arbitrary."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().argmin(axis=1))
    rows, columns = (values == values.amin(dim=1, keepdim=True)).nonzero(as_tuple=True)
    return columns[torch.searchsorted(rows, torch.arange(len(values), device=values.device))]


def _nearest(distances: torch.Tensor, k: int) -> torch.Tensor:
    """Return the columns (A, k) of the k smallest of each row, in order; of equal values the lower column is first."""
    k = min(k, distances.shape[1])
    if k * 8 >= distances.shape[1]:
        return distances.argsort(dim=1, stable=True)[:, :k]
    values, columns = distances.topk(k + 1, dim=1, largest=False)
    tied = (values[:, 1:] == values[:, :-1]).any(dim=1)
    if bool(tied.any()):  # topk returns equal values in any order; such rows are few
        rows = tied.nonzero()[:, 0]
        columns[rows] = distances[rows].argsort(dim=1, stable=True)[:, : k + 1]
    return columns[:, :k]


def _draw(weights: torch.Tensor, rows: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """Return a column for each of some rows (n,), drawn by the weights (A, N); each row needs a weight above 0.

    Drawn on the CPU from one uniform number per row, so that a seed gives the same draws on every device.
    """
    sums = weights.cumsum(dim=1, dtype=torch.float64)
    drawn = torch.rand(len(rows), generator=generator, dtype=torch.float64).to(weights.device)
    total = sums[rows, -1]
    targets = torch.minimum(drawn * total, total.nextafter(torch.zeros_like(total)))
    # The targets of a row are side by side, padded with 0, because the search goes row by row.
    counts = torch.bincount(rows, minlength=len(weights))
    place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    by_row = targets.new_zeros(len(weights), int(counts.max()) if len(rows) else 0)
    by_row[rows, place] = targets
    # The first column whose running sum passes the target: one with weight 0 never does.
    return torch.searchsorted(sums, by_row, right=True)[rows, place]
