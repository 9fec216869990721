"""The worst queries: what each found instead of the right answer, and which classes are confused."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tophit.evaluation.inputs import MEMORY_BUDGET, Array
from tophit.evaluation.nearest import FoundList, first_items, found_lists
from tophit.evaluation.relevance import Relevance
from tophit.evaluation.scores import SearchTask, search_task


@dataclass(frozen=True)
class WorstQuery:
    """One query and what it found. Items are gallery indices, nearest first.

    ``results`` are the first items, ``scores`` their similarities, ``correct`` whether each is relevant.
    ``before_first_right`` are those of the results that come before the first relevant item, whose rank from 1 is
    ``first_right_rank``.
    """

    query: int
    value: float
    results: list[int]
    scores: list[float]
    correct: list[bool]
    before_first_right: list[int]
    first_right_rank: int


@dataclass(frozen=True)
class Confusion:
    """How many of a class's queries have an item of another class as their nearest."""

    label: object
    taken_for: object
    queries: int


@dataclass(frozen=True)
class WorstQueries:
    """The queries with the lowest values, worst first, and the most frequent confusions over all queries."""

    queries: list[WorstQuery]
    confusions: list[Confusion]


def worst_queries(
    values: np.ndarray,
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    own_items: Array | None = None,
    *,
    relevance: Relevance | None = None,
    count: int = 20,
    results: int = 10,
    memory_budget: int = MEMORY_BUDGET,
) -> WorstQueries:
    """Return the ``count`` queries with the lowest ``values`` (N,), such as ``metrics.per_query["mAP"]``, without NaN.

    The other arguments are those that gave the values. Each query comes with its first ``results`` items. Equal
    values are ordered by the query's index, equal scores by the gallery's, confusions by number and then by index.
    """
    task = search_task(embeddings, labels, gallery, gallery_labels, own_items, relevance)
    values = np.asarray(values, np.float64)
    if values.shape != (len(task.queries),):
        raise ValueError(f"there are {len(task.queries)} queries but values of shape {values.shape}")
    if count < 1 or results < 1:
        raise ValueError("count and results must be at least 1")
    order = np.argsort(values, kind="stable")  # NaN goes last
    chosen = order[: min(count, int(np.count_nonzero(~np.isnan(values))))]
    names = _names_of_classes(task, labels, gallery_labels)
    lists = found_lists(task, chosen, results, memory_budget)
    return WorstQueries(
        [_worst_query(task, float(values[query]), found) for query, found in lists.items()],
        _confusions(task, ~np.isnan(values), names, count, memory_budget),
    )


def _worst_query(task: SearchTask, value: float, found: FoundList) -> WorstQuery:
    ranked = len(task.items) - int(task.own_items[found.query] >= 0)
    first = found.first_right or ranked + 1
    before = found.items[: first - 1]
    return WorstQuery(found.query, value, found.items, found.scores, found.right, before, first)


def _confusions(
    task: SearchTask, counted: np.ndarray, names: dict[int, object], most: int, memory_budget: int
) -> list[Confusion]:
    nearest = first_items(task, 1, memory_budget)[0][:, 0]
    taken_for = task.item_classes[nearest]
    wrong = counted & (nearest >= 0) & (taken_for != task.query_classes)
    if task.relevance is not None:
        wrong &= [not task.is_right(query)[item] for query, item in enumerate(nearest)]
    pairs = Counter(zip(task.query_classes[wrong].tolist(), taken_for[wrong].tolist(), strict=True))
    ranked = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Confusion(names[a], names[b], number) for (a, b), number in ranked[:most]]


def _names_of_classes(task: SearchTask, labels: Array, gallery_labels: Array | None) -> dict[int, object]:
    """Return the label behind each class number."""
    names: dict[int, object] = {}
    for classes, given in ((task.query_classes, labels), (task.item_classes, gallery_labels)):
        if given is not None:
            plain = given.tolist() if hasattr(given, "tolist") else list(given)  # type: ignore[union-attr]
            names.update(zip(classes.tolist(), plain, strict=True))
    return names
