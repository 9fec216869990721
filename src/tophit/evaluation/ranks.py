"""The rank of every relevant item, by counting what stands before it instead of sorting the gallery.

An item stands before another if its score is larger, or equal with the lower gallery index. Every retrieval metric
follows from these ranks alone: an item is among the first k if and only if its rank is at most k.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch

from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.evaluation.similarity import ScoreStrips, SearchTask

# Sorting a row costs about as much as comparing it with this many thresholds (python -m benchmarks.evaluation).
_MOST_COMPARED = 40
_LEAST_GROUP = 2**16  # relevant items (10 MB); smaller groups would compute the same scores over and over
_GROUP_BYTES = 160  # a relevant item's positions, scores, ranks and the sums made of them, at the peak


@dataclass(frozen=True)
class RelevantRanks:
    """Ranks from 1 of the relevant items of queries ``first .. first + len(counts) - 1``.

    ``counts`` (queries,) says how many each query has; ``ranks`` holds them query after query, ascending in each.
    """

    first: int
    counts: np.ndarray
    ranks: np.ndarray


@dataclass(frozen=True)
class _Group:
    """Consecutive queries and their relevant items: ``items[starts[i]:starts[i + 1]]`` are query ``first + i``'s."""

    first: int
    starts: np.ndarray
    items: np.ndarray

    @property
    def owners(self) -> np.ndarray:
        """Which query of the group each relevant item belongs to, from 0."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


def relevant_ranks(task: SearchTask, memory_budget: int = MEMORY_BUDGET) -> Iterator[RelevantRanks]:
    """Yield the ranks of all relevant items, group after group of queries in their order."""
    strips = ScoreStrips(task, memory_budget)
    relevant = _RelevantItems(task)
    most = max(_LEAST_GROUP, memory_budget // 4 // _GROUP_BYTES)
    one_span = len(strips.spans) == 1
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        for strip in strips.strips:
            scores = strips.scores(strip, strips.spans[0]) if one_span else None
            for group in relevant.groups(strip, most):
                yield _ranks_of_group(group, strip, strips, scores, threads)


class _RelevantItems:
    """The gallery indices of each class, ascending, and from them the relevant items of a query."""

    def __init__(self, task: SearchTask) -> None:
        self.task = task
        self.by_class = np.argsort(task.item_classes, kind="stable")
        classes = 1 + max(task.item_classes.max(), task.query_classes.max())
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(task.item_classes, minlength=classes))])

    def groups(self, strip: tuple[int, int], most: int) -> Iterator[_Group]:
        """Yield the strip's queries in groups of at most ``most`` relevant items (a query with more is its own)."""
        classes = self.task.query_classes[slice(*strip)]
        sizes = self.starts[classes + 1] - self.starts[classes]
        begin = 0
        while begin < len(sizes):
            fitting = int(np.searchsorted(np.cumsum(sizes[begin:]), most, side="right"))
            end = begin + max(1, fitting)
            yield self._group(strip[0] + begin, classes[begin:end], sizes[begin:end])
            begin = end

    def _group(self, first: int, classes: np.ndarray, sizes: np.ndarray) -> _Group:
        owners = np.repeat(np.arange(len(sizes)), sizes)
        within = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        items = self.by_class[self.starts[classes][owners] + within]
        kept = items != self.task.own_items[first + owners]
        counts = np.bincount(owners[kept], minlength=len(sizes))
        return _Group(first, np.concatenate([[0], np.cumsum(counts)]), items[kept])


def _ranks_of_group(
    group: _Group, strip: tuple[int, int], strips: ScoreStrips, scores: np.ndarray | None, threads: ThreadPoolExecutor
) -> RelevantRanks:
    """Count in two rounds over the spans: first read the scores of the relevant items, then compare with them.

    ``scores`` are the strip's if one span holds all items; else each span is computed again for the second round.
    """
    row = group.first - strip[0]
    rows = slice(row, row + len(group.starts) - 1)
    owners = group.owners
    thresholds = np.empty(len(group.items), np.float64)
    spans = strips.spans if len(group.items) else []
    for span in spans:
        part = strips.scores(strip, span) if scores is None else scores
        inside = np.flatnonzero((group.items >= span[0]) & (group.items < span[1]))
        thresholds[inside] = part[row + owners[inside], group.items[inside] - span[0]]
    before = np.zeros(len(group.items), np.int64)
    for span in spans:
        part = strips.scores(strip, span) if scores is None else scores
        _count_in_rows(part[rows], span[0], group, thresholds.astype(part.dtype), before, threads)
    order = np.lexsort((before, owners))
    return RelevantRanks(group.first, np.diff(group.starts), before[order] + 1)


def _count_in_rows(
    scores: np.ndarray,
    offset: int,
    group: _Group,
    thresholds: np.ndarray,
    before: np.ndarray,
    threads: ThreadPoolExecutor,
) -> None:
    """Add to ``before`` what each row of scores, items from ``offset`` on, holds before each relevant item."""

    def work(rows: range) -> None:
        mask = np.empty(scores.shape[1], np.bool_)
        for row in rows:
            part = slice(group.starts[row], group.starts[row + 1])
            many = part.stop - part.start > _MOST_COMPARED
            count = _count_by_sorting if many else _count_by_comparing
            count(scores[row], group.items[part] - offset, thresholds[part], before[part], mask)

    # numpy lets go of the interpreter while it compares, so threads share the rows; each row is one thread's alone.
    step = max(1, -(-len(scores) // (4 * torch.get_num_threads())))
    list(threads.map(work, [range(i, min(i + step, len(scores))) for i in range(0, len(scores), step)]))


def _count_by_comparing(
    row: np.ndarray, places: np.ndarray, thresholds: np.ndarray, before: np.ndarray, mask: np.ndarray
) -> None:
    """Compare the row (n,) with each threshold: equal scores count up to the item's place, larger after it."""
    for i, (place, threshold) in enumerate(zip(places.clip(0, len(row)).tolist(), thresholds, strict=True)):
        np.greater_equal(row[:place], threshold, out=mask[:place])
        np.greater(row[place:], threshold, out=mask[place:])
        before[i] += np.count_nonzero(mask)


def _count_by_sorting(
    row: np.ndarray, places: np.ndarray, thresholds: np.ndarray, before: np.ndarray, mask: np.ndarray
) -> None:
    """Find all thresholds in the sorted row (n,); where scores inside the row tie, order them by place as well."""
    ordered = np.sort(row)
    larger = len(row) - np.searchsorted(ordered, thresholds, side="right")
    at_least = len(row) - np.searchsorted(ordered, thresholds, side="left")
    before += np.where(places >= len(row), at_least, larger)
    inside = (places >= 0) & (places < len(row))
    tied = inside & (at_least - larger > 1)
    if tied.any():
        place_in_order = np.empty(len(row), np.int64)
        place_in_order[np.argsort(-row, kind="stable")] = np.arange(len(row))
        before[tied] += place_in_order[places[tied]] - larger[tied]
