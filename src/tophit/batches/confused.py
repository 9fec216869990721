"""Batches of classes that the model confuses, found by searching the whole training set."""

from collections.abc import Hashable, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from scipy import sparse

from tophit.batches.balanced import BalancedBatchSampler, Group
from tophit.options import Count, Doc
from tophit.registry import register
from tophit.wording import counted

_MOST_QUERIES = 20_000  # images that search the others, drawn at random if there are more
_BLOCK = 1024


@register("sampler", "confused")
class ConfusedBatchSampler(BalancedBatchSampler):
    """Balanced batches that hold classes which are confused, so that a batch's negatives are hard, for any loss.

    Every ``mine_every`` epochs the training images search each other (at most 20,000 of them search). Two classes are
    as near as images of one are among the ``neighbours`` nearest of the other's images. Each batch begins with a random
    class and takes the nearest one to those it holds, again and again. As in balanced batches, every image comes once
    per epoch, so no class is used more often than others; ``coverage`` says how many classes have a near one.
    Before the first search classes are dealt at random.
    """

    def __init__(
        self,
        labels: Sequence[Hashable],
        classes: Annotated[Count, Doc("Classes in a balanced batch.")] = 32,
        per_class: Annotated[Count, Doc("Images of each class in a balanced batch.")] = 4,
        seed: int = 0,
        mine_every: Annotated[Count, Doc("Epochs between searches for confused classes (for confused).")] = 1,
        neighbours: Annotated[Count, Doc("Nearest images that count as confused (for confused).")] = 10,
    ) -> None:
        self.near: sparse.csr_matrix | None = None  # (L, L) how often the images of two classes are near each other
        self.mined_at = -1
        super().__init__(labels, classes, per_class, seed)
        self.mine_every, self.neighbours = mine_every, neighbours
        self.class_of_row = np.zeros(sum(map(len, self.rows_of_class)), dtype=np.int64)
        for number, rows in enumerate(self.rows_of_class):
            self.class_of_row[rows] = number

    def is_due(self, epoch: int) -> bool:
        """Return whether an epoch (from 0) is to begin with a search."""
        return epoch % self.mine_every == 0 and self.mined_at != epoch

    def mine(self, vectors: np.ndarray, epoch: int) -> None:
        """Learn which classes are confused, from the unit vectors (N, d) of all training images."""
        self.mined_at = epoch
        queries = np.random.default_rng((self.seed, epoch, 1)).permutation(len(vectors))[:_MOST_QUERIES]
        found = nearest_of_other_classes(vectors, self.class_of_row, queries, self.neighbours)
        pairs = np.stack([np.repeat(self.class_of_row[queries], found.shape[1]), self.class_of_row[found].ravel()])
        pairs = pairs[:, (found >= 0).ravel()]
        count = len(self.rows_of_class)
        near = sparse.coo_matrix((np.ones(pairs.shape[1], np.float32), (pairs[0], pairs[1])), (count, count))
        self.near = (near + near.T).tocsr()

    @property
    def near_share(self) -> float:
        """The share of the classes that have a near one."""
        return 0.0 if self.near is None else float((np.diff(self.near.indptr) > 0).mean())

    @property
    def coverage(self) -> str:
        """What an epoch shows, in a sentence; none before the first search."""
        if self.near is None:
            return ""
        images = counted(len(self.class_of_row), "image")
        return (
            f"Each epoch shows all {images}; {self.near_share:.0%} of the classes have one that is confused with them."
        )

    def _deal(self, generator: np.random.Generator) -> list[list[Group]]:
        if self.near is None:
            return super()._deal(generator)
        waiting = [self._groups(rows, generator) for rows in self.rows_of_class]
        left = np.asarray([len(groups) for groups in waiting])
        dealt: list[list[Group]] = []
        for batches_left in range(self._length, 0, -1):
            chosen = self._choose(left, batches_left, generator)
            left[chosen] -= 1
            dealt.append([waiting[number].pop() for number in chosen])
        return [dealt[i] for i in generator.permutation(len(dealt))]

    def _choose(self, left: np.ndarray, batches_left: int, generator: np.random.Generator) -> list[int]:
        """Return the classes of a batch, given how many groups each has left.

        A class with as many groups as batches are left must be in each of them. The sizes of batches stay even.
        """
        assert self.near is not None
        size = -(-int(left.sum()) // batches_left)
        chosen = np.flatnonzero(left >= batches_left).tolist()
        open_to = (left > 0).astype(np.float64)
        open_to[chosen] = 0
        nearness = np.asarray(self.near[chosen].sum(axis=0)).ravel() if chosen else np.zeros(len(left))
        chance = generator.random(len(left))  # below 1, so it decides only between equals
        while len(chosen) < size and open_to.any():
            best = int(((nearness + chance) * open_to).argmax())
            chosen.append(best)
            open_to[best] = 0
            row = slice(self.near.indptr[best], self.near.indptr[best + 1])
            nearness[self.near.indices[row]] += self.near.data[row]
        return chosen

    def state_dict(self) -> dict[str, Any]:
        """Return which classes are near, and when this was found."""
        if self.near is None:
            return {"mined_at": self.mined_at, "near": None}
        parts = self.near.data, self.near.indices, self.near.indptr
        return {"mined_at": self.mined_at, "near": [torch.from_numpy(np.array(part)) for part in parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.mined_at = state["mined_at"]
        count = len(self.rows_of_class)
        parts = None if state["near"] is None else tuple(part.numpy() for part in state["near"])
        self.near = None if parts is None else sparse.csr_matrix(parts, shape=(count, count))


def nearest_of_other_classes(vectors: np.ndarray, classes: np.ndarray, queries: np.ndarray, count: int) -> np.ndarray:
    """Return the items (Q, count) of other classes among the nearest of each query, -1 where there are fewer.

    An item counts only if it is nearer than the ``count``-th image of the query's own class: then it is in the way.
    ``vectors`` (N, d) are unit vectors of ``classes`` (N,), ``queries`` (Q,) rows of them.
    """
    every = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float32))
    numbers = torch.from_numpy(classes)
    wide = min(2 * count, len(every) - 1)
    found = np.full((len(queries), count), -1, dtype=np.int64)
    for start in range(0, len(queries), _BLOCK):
        block = torch.from_numpy(queries[start : start + _BLOCK])
        scores = every[block] @ every.T
        scores[torch.arange(len(block)), block] = -torch.inf
        items = scores.topk(wide, dim=1).indices
        other = numbers[items] != numbers[block][:, None]
        behind = (~other).cumsum(dim=1) >= count
        kept = other & ~behind & (other.cumsum(dim=1) <= count)
        order = kept.to(torch.int8).sort(dim=1, descending=True, stable=True)
        chosen = items.gather(1, order.indices)[:, :count].masked_fill(~order.values[:, :count].bool(), -1)
        found[start : start + len(block), : chosen.shape[1]] = chosen.numpy()
    return found
