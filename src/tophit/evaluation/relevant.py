"""Which gallery items are relevant to a query: those of its class, but itself."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tophit.evaluation.similarity import SearchTask


@dataclass(frozen=True)
class RelevantRanks:
    """Ranks from 1 of the relevant items of queries ``first .. first + len(counts) - 1``.

    ``counts`` (queries,) says how many each query has; ``ranks`` holds them query after query, ascending in each.
    """

    first: int
    counts: np.ndarray
    ranks: np.ndarray


@dataclass(frozen=True)
class Group:
    """Consecutive queries and their relevant items: ``items[starts[i]:starts[i + 1]]`` are query ``first + i``'s."""

    first: int
    starts: np.ndarray
    items: np.ndarray

    @property
    def owners(self) -> np.ndarray:
        """Which query of the group each relevant item belongs to, from 0."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


class RelevantItems:
    """The gallery indices of each class, ascending, and from them the relevant items of a query."""

    def __init__(self, task: SearchTask) -> None:
        self.task = task
        self.by_class = np.argsort(task.item_classes, kind="stable")
        classes = 1 + max(task.item_classes.max(), task.query_classes.max())
        self.sizes = np.bincount(task.item_classes, minlength=classes)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self.place = np.empty(len(self.by_class), np.int64)  # where each item stands in by_class
        self.place[self.by_class] = np.arange(len(self.by_class))

    def other(self, items: np.ndarray, nth: np.ndarray) -> np.ndarray:
        """Return where the nth (s, 1), from 0, other item of each item's class (n,) stands in ``by_class`` (s, n)."""
        own = self.place[items]
        start = self.starts[self.task.item_classes[items]]
        return start + nth + (start + nth >= own)

    def groups(self, strip: tuple[int, int], most: int) -> Iterator[Group]:
        """Yield the strip's queries in groups of at most ``most`` relevant items (a query with more is its own)."""
        classes = self.task.query_classes[slice(*strip)]
        sizes = self.starts[classes + 1] - self.starts[classes]
        begin = 0
        while begin < len(sizes):
            fitting = int(np.searchsorted(np.cumsum(sizes[begin:]), most, side="right"))
            end = begin + max(1, fitting)
            yield self._group(strip[0] + begin, classes[begin:end], sizes[begin:end])
            begin = end

    def _group(self, first: int, classes: np.ndarray, sizes: np.ndarray) -> Group:
        owners = np.repeat(np.arange(len(sizes)), sizes)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        items = self.by_class[self.starts[classes][owners] + within]
        kept = items != self.task.own_items[first + owners]
        counts = np.bincount(owners[kept], minlength=len(sizes))
        return Group(first, np.concatenate([[0], np.cumsum(counts)]), items[kept])
