"""The relevant items of a query, the others of its class or those with a grade, and their ranks."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tophit.evaluation.relevance import Relevance, Relevant
from tophit.evaluation.scores import SearchTask


@dataclass(frozen=True)
class RankedQueries:
    """Ranks from 1 of the relevant items of queries ``first .. first + len(counts) - 1``: what metrics are made of.

    ``counts`` (queries,) says how many relevant items each query has; ``ranks`` (items,) holds their ranks query by
    query, ascending within each. What several metrics need is computed once and kept. ``grades`` (items,) are above 0;
    None means that each is 1. ``right_from`` (queries,) is the grade from which an item is right; None: all are.
    """

    first: int
    counts: np.ndarray
    ranks: np.ndarray
    grades: np.ndarray | None = None
    right_from: np.ndarray | None = None
    _among_first: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    _from_level: "dict[int, RankedQueries]" = field(default_factory=dict, repr=False, compare=False)

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

    @cached_property
    def different_grades(self) -> np.ndarray:
        """The different grades, ascending; 1 if there are none."""
        if self.grades is None:
            return np.ones(1)
        if self.grades.dtype == np.uint8:  # counting is faster than sorting
            return np.flatnonzero(np.bincount(self.grades)).astype(np.uint8)
        return np.unique(self.grades)

    @cached_property
    def right(self) -> "RankedQueries":
        """The same queries with only the right ones of their relevant items, without grades."""
        if self.grades is None or self.right_from is None:
            return RankedQueries(self.first, self.counts, self.ranks)
        return self._only(self.grades >= self.right_from[self.owners])

    def from_level(self, level: int) -> "RankedQueries":
        """Return the same queries with only the items that share at least so many levels of a hierarchy."""
        if level not in self._from_level:
            assert self.grades is not None
            self._from_level[level] = self._only(self.grades >= level)
        return self._from_level[level]

    def _only(self, kept: np.ndarray) -> "RankedQueries":
        if kept.all():
            return RankedQueries(self.first, self.counts, self.ranks)
        counts = np.bincount(self.owners[kept], minlength=len(self.counts))
        return RankedQueries(self.first, counts, self.ranks[kept])

    def one_by_one(self) -> Iterator["RankedQueries"]:
        """Yield each query alone."""
        ends = np.cumsum(self.counts)
        for number, (count, end) in enumerate(zip(self.counts.tolist(), ends.tolist(), strict=True)):
            part = slice(end - count, end)
            grades = None if self.grades is None else self.grades[part]
            yield RankedQueries(self.first + number, self.counts[number : number + 1], self.ranks[part], grades)

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of values (items,) for each query (queries,)."""
        return np.bincount(self.owners, weights=values, minlength=len(self.counts))

    def among_first(self, k: int) -> np.ndarray:
        """Return how many relevant items are among the first k results of each query (queries,)."""
        if k not in self._among_first:
            self._among_first[k] = np.bincount(self.owners[self.ranks <= k], minlength=len(self.counts)).astype(float)
        return self._among_first[k]


@dataclass(frozen=True)
class Group:
    """Consecutive queries and their relevant items: query ``first + i`` has ``items[starts[i]:starts[i + 1]]``.

    ``grades`` (items,) and ``right_from`` (queries,) as in ``RankedQueries``.
    """

    first: int
    starts: np.ndarray
    items: np.ndarray
    grades: np.ndarray | None = None
    right_from: np.ndarray | None = None

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


class GradedItems:
    """What ``RelevantItems`` is for classes, for a task with a relevance of its own."""

    def __init__(self, task: SearchTask, relevance: Relevance) -> None:
        self.task, self.relevance = task, relevance

    def groups(self, strip: tuple[int, int], most: int) -> Iterator[Group]:
        """Yield the queries of a strip in groups of at most ``most`` relevant items; one with more is a group alone."""
        first, found, held = strip[0], list[Relevant](), 0
        for query in range(*strip):
            items, grades = self.relevance.of_query(query)
            others = items != self.task.own_items[query]
            if not others.all():
                items, grades = items[others], grades[others]
            if found and held + len(items) > most:
                yield self._group(first, found)
                first, found, held = query, [], 0
            found.append((items, grades))
            held += len(items)
        yield self._group(first, found)

    def _group(self, first: int, found: list[Relevant]) -> Group:
        starts = np.concatenate([[0], np.cumsum([len(items) for items, _ in found])])
        items, grades = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return Group(first, starts, items, grades, self.relevance.right_from[first : first + len(found)])
