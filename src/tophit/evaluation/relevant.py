"""The relevant items of a query, which are the others of its class, and their ranks."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tophit.evaluation.scores import SearchTask


@dataclass(frozen=True)
class RankedQueries:
    """Ranks from 1 of the relevant items of queries ``first .. first + len(counts) - 1``: what metrics are made of.

    ``counts`` (queries,) says how many relevant items each query has; ``ranks`` (items,) holds their ranks query by
    query, ascending within each. What several metrics need is computed once and kept.
    """

    first: int
    counts: np.ndarray
    ranks: np.ndarray
    _among_first: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def owners(self) -> np.ndarray:
        """The query of each relevant item (items,), from 0."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def first_ranks(self) -> np.ndarray:
        """The rank of each query's first relevant item (queries,), as floats; NaN if it has none."""
        first = np.full(len(self.counts), np.nan)
        first[self.counts > 0] = self.ranks[(np.cumsum(self.counts) - self.counts)[self.counts > 0]]
        return first

    @cached_property
    def precisions(self) -> np.ndarray:
        """The precision at the rank of each relevant item (items,)."""
        nth = np.arange(1, len(self.ranks) + 1) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        return nth / self.ranks

    @cached_property
    def gains(self) -> np.ndarray:
        """The discounted gain 1 / log2(rank + 1) of each relevant item (items,)."""
        return 1 / np.log2(self.ranks + 1)

    @cached_property
    def best_gains(self) -> np.ndarray:
        """The sum of the gains of n relevant items in front, for n from 0 to the largest count."""
        places = np.arange(int(self.counts.max(initial=0)))
        return np.concatenate([[0.0], np.cumsum(1 / np.log2(places + 2))])

    @cached_property
    def within_count(self) -> np.ndarray:
        """Whether the rank of each relevant item (items,) is at most the query's number of relevant items."""
        return self.ranks <= self.counts[self.owners]

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of values (items,) for each query (queries,)."""
        return np.bincount(self.owners, weights=values, minlength=len(self.counts))

    def among_first(self, k: int) -> np.ndarray:
        """Return how many relevant items are among the first k results of each query (queries,)."""
        if k not in self._among_first:
            self._among_first[k] = self.sum(self.ranks <= k)
        return self._among_first[k]


@dataclass(frozen=True)
class Group:
    """Consecutive queries and their relevant items: query ``first + i`` has ``items[starts[i]:starts[i + 1]]``."""

    first: int
    starts: np.ndarray
    items: np.ndarray

    @property
    def owners(self) -> np.ndarray:
        """The query of each relevant item, from 0 within the group."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


class RelevantItems:
    """The gallery indices of each class, ascending, and from them the relevant items of a query."""

    def __init__(self, task: SearchTask) -> None:
        self.task = task
        self.by_class = np.argsort(task.item_classes, kind="stable")
        classes = 1 + max(task.item_classes.max(), task.query_classes.max())
        self.sizes = np.bincount(task.item_classes, minlength=classes)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self.place = np.empty(len(self.by_class), np.int64)  # the place of each item in by_class
        self.place[self.by_class] = np.arange(len(self.by_class))

    def other(self, items: np.ndarray, nth: np.ndarray) -> np.ndarray:
        """Return the place in ``by_class`` (s, n) of the nth (s, 1), from 0, other item of each item's class (n,)."""
        own = self.place[items]
        start = self.starts[self.task.item_classes[items]]
        return start + nth + (start + nth >= own)

    def groups(self, strip: tuple[int, int], most: int) -> Iterator[Group]:
        """Yield the queries of a strip in groups of at most ``most`` relevant items; one with more is a group alone."""
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
