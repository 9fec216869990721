"""What chosen queries found: their first results, the rank of the first right one, and what the loss would move."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.evaluation.similarity import ScoreStrips, SearchTask
from tophit.losses.topk_precision import misplaced_pairs
from tophit.progress import Progress

_QUERIES = 64  # of the misplaced sets found at a time


@dataclass(frozen=True)
class FoundList:
    """The first results of one query: gallery indices, nearest first, and their similarities.

    ``first_right`` is the rank from 1 of the first result of the query's class and ``first_right_item`` that result,
    which may stand behind those that are held; None if there is none in the gallery.
    """

    query: int
    items: list[int]
    scores: list[float]
    right: list[bool]
    first_right: int | None
    first_right_item: int | None


@dataclass(frozen=True)
class MisplacedSets:
    """The top-k precision loss's sets of a query, as gallery indices, best ranked first: P belongs into the first k
    results in the place of N.
    """

    belong: list[int]
    intrude: list[int]


def found_lists(
    task: SearchTask,
    queries: Sequence[int],
    most: int,
    memory_budget: int = MEMORY_BUDGET,
    progress: Progress | None = None,
) -> dict[int, FoundList]:
    """Return the first ``most`` results of each chosen query of a task; equal scores by the gallery's order."""
    if not len(queries):
        return {}
    chosen = np.asarray(queries)
    part = replace(
        task,
        queries=task.queries[torch.from_numpy(chosen)],
        query_classes=task.query_classes[chosen],
        own_items=task.own_items[chosen],
    )
    strips = ScoreStrips(part, memory_budget)
    found: dict[int, FoundList] = {}
    steps = strips.strips
    for strip in progress(steps, len(steps)) if progress else steps:
        for place, each in zip(range(*strip), _lists_of_strip(strips, strip, most), strict=True):
            found[int(chosen[place])] = replace(each, query=int(chosen[place]))
    return found


def _lists_of_strip(strips: ScoreStrips, strip: tuple[int, int], most: int) -> Iterator[FoundList]:
    """Yield the results of each query of a strip, span after span of the gallery."""
    task, count = strips.task, strip[1] - strip[0]
    classes = task.query_classes[slice(*strip)]
    best: list[tuple[np.ndarray, np.ndarray]] = [(np.zeros(0, np.int64), np.zeros(0))] * count
    first_right = np.full(count, -np.inf)  # the score of the nearest right item, and its place
    place_right = np.full(count, -1)
    for span in strips.spans:
        scores = strips.scores(strip, span)
        same = task.item_classes[slice(*span)]
        for row in range(count):
            best[row] = _merged(best[row], scores[row], span[0], most)
            own = np.flatnonzero((same == classes[row]) & np.isfinite(scores[row]))
            if len(own):
                nearest = own[scores[row][own].argmax()]
                if scores[row][nearest] > first_right[row]:
                    first_right[row], place_right[row] = scores[row][nearest], span[0] + nearest
    before = np.zeros(count, np.int64)
    for span in strips.spans:
        scores = strips.scores(strip, span)
        numbers = np.arange(*span)
        for row in np.flatnonzero(place_right >= 0):
            ahead = (scores[row] == first_right[row]) & (numbers < place_right[row])
            before[row] += np.count_nonzero(scores[row] > first_right[row]) + np.count_nonzero(ahead)
    for row, (items, values) in enumerate(best):
        yield FoundList(
            query=-1,
            items=items.tolist(),
            scores=[float(value) for value in values],
            right=(task.item_classes[items] == classes[row]).tolist(),
            first_right=int(before[row]) + 1 if place_right[row] >= 0 else None,
            first_right_item=int(place_right[row]) if place_right[row] >= 0 else None,
        )


def _merged(
    held: tuple[np.ndarray, np.ndarray], scores: np.ndarray, start: int, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best of what is held and of the scores (M,) of the items from ``start`` on, in order."""
    border = np.partition(scores, -most)[-most] if len(scores) > most else -np.inf
    near = np.flatnonzero((scores >= border) & np.isfinite(scores))
    items = np.concatenate([held[0], start + near])
    values = np.concatenate([held[1], scores[near]])
    order = np.argsort(-values, kind="stable")[:most]  # items stand in their own order, so the lower one comes first
    return items[order], values[order]


def misplaced_sets(
    task: SearchTask, queries: Sequence[int], k: int, margin: float, memory_budget: int = MEMORY_BUDGET
) -> dict[int, MisplacedSets]:
    """Return the sets P and N of the top-k precision loss (Lu et al., Eqs. 6 to 10) of each chosen query.

    The candidates are the whole gallery, not a batch of training, so these are what the loss would move here.
    """
    size = max(1, min(_QUERIES, memory_budget // 8 // max(1, len(task.items)) // 16))
    found: dict[int, MisplacedSets] = {}
    items = torch.nn.functional.normalize(task.items.float(), dim=1)
    for start in range(0, len(queries), size):
        part = np.asarray(queries[start : start + size])
        similarity = torch.nn.functional.normalize(task.queries[torch.from_numpy(part)].float(), dim=1) @ items.T
        same = torch.from_numpy(task.query_classes[part][:, None] == task.item_classes[None])
        own = torch.from_numpy(task.own_items[part][:, None] == np.arange(len(task.items))[None])
        pairs = misplaced_pairs(similarity, same & ~own, ~same & ~own, k, margin)
        for place, query in enumerate(part.tolist()):
            mine = pairs.queries == place
            found[query] = MisplacedSets(pairs.positives[mine].tolist(), pairs.negatives[mine].tolist())
    return found
