"""The rank of every relevant item, by counting the items before it instead of sorting the gallery.

An item comes before another if its score is larger, or equal with the lower gallery index. Every retrieval metric
follows from these ranks: an item is among the first k if and only if its rank is at most k.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import torch

from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.evaluation.one_set import UnequalScoresError, fits_one_set, ranks_in_one_set
from tophit.evaluation.relevant import GradedItems, Group, RankedQueries, RelevantItems
from tophit.evaluation.scores import ScoreStrips, SearchTask
from tophit.evaluation.sorted_rows import SHORT, pays_to_sort, ranks_by_sorting

# Costs of sorting a row and of starting a comparison, in comparisons of one score (python -m benchmarks.evaluation).
COST_OF_SORTING = 33
_COST_OF_STARTING = 14_000
_LEAST_GROUP = 2**16  # relevant items (10 MB); smaller groups would compute the same scores again and again
FEW = 1 / 32  # the share of a row that counts as few
_GROUP_BYTES = 160  # peak memory per relevant item: positions, scores, ranks and the sums computed from them


def relevant_ranks(task: SearchTask, memory_budget: int = MEMORY_BUDGET) -> Iterator[RankedQueries]:
    """Yield the ranks of all relevant items in groups of consecutive queries."""
    if task.relevance is not None:
        yield from _ranks_by_strips(task, GradedItems(task, task.relevance), memory_budget)
        return
    relevant = RelevantItems(task)
    if fits_one_set(task, relevant, memory_budget):
        with suppress(UnequalScoresError):
            yield from ranks_in_one_set(task, relevant, memory_budget)
            return
    yield from _ranks_by_strips(task, relevant, memory_budget)


def _ranks_by_strips(
    task: SearchTask, relevant: RelevantItems | GradedItems, memory_budget: int
) -> Iterator[RankedQueries]:
    """Yield the ranks from strips of the similarity matrix, for any task."""
    strips = ScoreStrips(task, memory_budget)
    most = max(_LEAST_GROUP, memory_budget // 4 // _GROUP_BYTES)
    one_span = len(strips.spans) == 1
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        for strip in strips.strips:
            scores = strips.scores(strip, strips.spans[0]) if one_span else None
            for group in relevant.groups(strip, most):
                yield _ranks_of_group(group, strip, strips, scores, threads)


def _ranks_of_group(
    group: Group, strip: tuple[int, int], strips: ScoreStrips, scores: np.ndarray | None, threads: ThreadPoolExecutor
) -> RankedQueries:
    """Count in two passes over the spans: first read the scores of the relevant items, then compare with them.

    ``scores`` are those of the strip if one span has all items; else each span is computed again in the second pass.
    """
    row = group.first - strip[0]
    rows = slice(row, row + len(group.starts) - 1)
    if scores is not None and pays_to_sort(scores, group):
        ranks, grades = ranks_by_sorting(scores[rows], group, threads)
        return RankedQueries(group.first, np.diff(group.starts), ranks, grades, group.right_from)
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
    grades = None if group.grades is None else group.grades[order]
    return RankedQueries(group.first, np.diff(group.starts), before[order] + 1, grades, group.right_from)


def _count_in_rows(
    scores: np.ndarray,
    offset: int,
    group: Group,
    thresholds: np.ndarray,
    before: np.ndarray,
    threads: ThreadPoolExecutor,
) -> None:
    """Add to ``before`` how many scores of each row, items from ``offset`` on, come before each relevant item."""

    def work(rows: range) -> None:
        mask = np.empty(scores.shape[1], np.bool_)
        for row in rows:
            part = slice(group.starts[row], group.starts[row + 1])
            before[part] += _count_in_row(scores[row], group.items[part] - offset, thresholds[part], mask)

    # numpy releases the interpreter lock while it compares, so threads share the rows; one thread has one row.
    step = max(1, -(-len(scores) // (4 * torch.get_num_threads())))
    list(threads.map(work, [range(i, min(i + step, len(scores))) for i in range(0, len(scores), step)]))


def _count_in_row(row: np.ndarray, places: np.ndarray, thresholds: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return how many scores of the row (n,) come before each relevant item.

    ``thresholds`` are the scores of the relevant items, ``places`` their positions in the row: below 0 before its
    begin, n or more after its end. ``mask`` (n,) is working memory.

    The row is compared with the lowest threshold first. Once few scores exceed a threshold, the higher thresholds are
    compared with these few only: a good model has most relevant items near the top. If that does not happen within as
    many comparisons as sorting the row costs, the rest is found in the sorted row.
    """
    before = np.empty(len(places), np.int64)
    waiting = np.argsort(thresholds)
    comparisons = int(COST_OF_SORTING * len(row) / (_COST_OF_STARTING + len(row)))
    while len(waiting):
        if not comparisons or (len(row) < SHORT and len(waiting) > comparisons):
            before[waiting] = _count_by_sorting(row, places[waiting], thresholds[waiting])
            break
        lowest, waiting = waiting[0], waiting[1:]
        before[lowest] = _count_by_comparing(row, int(places[lowest]), thresholds[lowest].item(), mask)
        comparisons -= 1
        if before[lowest] <= FEW * len(row) and len(row) >= SHORT:
            higher = waiting[np.searchsorted(thresholds[waiting], thresholds[lowest], side="right") :]
            above = np.flatnonzero(mask)
            places_there = np.where(places[higher] < 0, -1, np.searchsorted(above, places[higher]))
            before[higher] = _count_by_sorting(row[above], places_there, thresholds[higher])
            waiting = waiting[: len(waiting) - len(higher)]
    return before


def _count_by_comparing(row: np.ndarray, place: int, threshold: float, mask: np.ndarray) -> int:
    """Mark in ``mask`` the scores before an item and count them: at least equal up to its place, larger after it."""
    place = min(max(place, 0), len(row))
    np.greater_equal(row[:place], threshold, out=mask[:place])
    np.greater(row[place:], threshold, out=mask[place:])
    return int(np.count_nonzero(mask))


def _count_by_sorting(row: np.ndarray, places: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Find all thresholds in the sorted row (n,); equal scores within the row are ordered by place."""
    ordered = np.sort(row)
    larger = len(row) - np.searchsorted(ordered, thresholds, side="right")
    at_least = len(row) - np.searchsorted(ordered, thresholds, side="left")
    before = np.where(places >= len(row), at_least, larger)
    inside = (places >= 0) & (places < len(row))
    tied = inside & (at_least - larger > 1)
    if tied.any():
        place_in_order = np.empty(len(row), np.int64)
        place_in_order[np.argsort(-row, kind="stable")] = np.arange(len(row))
        before[tied] = place_in_order[places[tied]]
    return before
