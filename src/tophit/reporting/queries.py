"""Which queries a report shows: best, worst and random ones, and their misplaced results."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.evaluation.scores import SearchTask

_QUERIES = 64  # whose misplaced results are found at a time


@dataclass(frozen=True)
class ChosenQueries:
    """The numbers of the best, the worst and some random queries, each from different classes as far as possible."""

    best: list[int]
    worst: list[int]
    random: list[int]


def choose_queries(values: np.ndarray, classes: np.ndarray, count: int, seed: int = 0) -> ChosenQueries:
    """Choose by average precision (Q,), NaN for a query without a right answer; ``classes`` (Q,) are those of queries.

    Of equally good queries those of larger classes come first, because they had more to find.
    """
    asked = np.flatnonzero(~np.isnan(values))
    sizes = np.bincount(classes)[classes]
    best = asked[np.lexsort((asked, -sizes[asked], -values[asked]))]
    shuffled = np.random.default_rng(seed).permutation(asked)
    return ChosenQueries(
        _of_different_classes(best, classes, count),
        _of_different_classes(worst_first(values), classes, count),
        _of_different_classes(shuffled, classes, count),
    )


def worst_first(values: np.ndarray) -> np.ndarray:
    """Return the numbers of the queries by increasing value (Q,), without those that are NaN."""
    order = np.argsort(values, kind="stable")
    return order[~np.isnan(values[order])]


def _of_different_classes(order: np.ndarray, classes: np.ndarray, count: int) -> list[int]:
    """Return the first queries of different classes; if there are too few classes, further queries of any."""
    _, first = np.unique(classes[order], return_index=True)
    leading = np.sort(first)[:count]
    if len(leading) < count:
        others = np.setdiff1d(np.arange(len(order)), leading)[: count - len(leading)]
        leading = np.sort(np.concatenate([leading, others]))
    return order[leading].tolist()


@dataclass(frozen=True)
class MisplacedSets:
    """The sets of the top-k precision loss for a query, as gallery indices, best ranked first.

    P (``belong``) should be among the first k results instead of N (``intrude``).
    """

    belong: list[int]
    intrude: list[int]


def misplaced_sets(
    task: SearchTask, queries: Sequence[int], k: int, margin: float, memory_budget: int = MEMORY_BUDGET
) -> dict[int, MisplacedSets]:
    """Return the sets P and N of the top-k precision loss (Lu et al., Eqs. 6 to 10) of each chosen query.

    The candidates are the whole gallery, not a training batch: these are the results that the loss would move.
    """
    from tophit.losses.topk_precision import misplaced_pairs  # here, because most reports need no loss

    size = max(1, min(_QUERIES, memory_budget // 8 // max(1, len(task.items)) // 16))
    found: dict[int, MisplacedSets] = {}
    items = torch.nn.functional.normalize(task.items.float(), dim=1)
    for start in range(0, len(queries), size):
        part = np.asarray(queries[start : start + size])
        similarity = torch.nn.functional.normalize(task.queries[torch.from_numpy(part)].float(), dim=1) @ items.T
        same = torch.from_numpy(np.stack([task.is_right(query) for query in part.tolist()]))
        own = torch.from_numpy(task.own_items[part][:, None] == np.arange(len(task.items))[None])
        pairs = misplaced_pairs(similarity, same & ~own, ~same & ~own, k, margin)
        for place, query in enumerate(part.tolist()):
            mine = pairs.queries == place
            found[query] = MisplacedSets(pairs.positives[mine].tolist(), pairs.negatives[mine].tolist())
    return found
