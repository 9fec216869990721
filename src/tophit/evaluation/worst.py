"""The worst queries: what each found instead of the right answer, and which classes are taken for one another."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from tophit.evaluation.inputs import MEMORY_BUDGET, Array
from tophit.evaluation.retrieval import search_task
from tophit.evaluation.similarity import ScoreStrips, SearchTask


@dataclass(frozen=True)
class WorstQuery:
    """One query and what it found. Items are gallery indices, nearest first.

    ``results`` are the first items, ``scores`` their similarities, ``correct`` whether each is relevant.
    ``before_first_right`` are the items before the first relevant one, as many as ``results`` holds at most;
    ``first_right_rank`` is that one's rank from 1.
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
    """The queries with the least values, worst first, and the most frequent confusions over all queries."""

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
    count: int = 20,
    results: int = 10,
    memory_budget: int = MEMORY_BUDGET,
) -> WorstQueries:
    """Return the ``count`` queries with the least ``values`` (N,), such as ``metrics.per_query["mAP"]``; not NaN.

    The other arguments are those that made the values. Each query comes with its first ``results`` items. Equal
    values are ordered by the query's index, equal scores by the gallery's, confusions by number and then by index.
    """
    task = search_task(embeddings, labels, gallery, gallery_labels, own_items)
    values = np.asarray(values, np.float64)
    if values.shape != (len(task.queries),):
        raise ValueError(f"there are {len(task.queries)} queries but values of shape {values.shape}")
    if count < 1 or results < 1:
        raise ValueError("count and results are at least 1")
    order = np.argsort(values, kind="stable")  # NaN goes last
    chosen = order[: min(count, int(np.count_nonzero(~np.isnan(values))))]
    names = _names_of_classes(task, labels, gallery_labels)
    return WorstQueries(
        [_describe(task, int(query), float(values[query]), results, memory_budget) for query in chosen],
        _confusions(task, ~np.isnan(values), names, count, memory_budget),
    )


def _describe(task: SearchTask, query: int, value: float, results: int, memory_budget: int) -> WorstQuery:
    alone = SearchTask(
        task.queries[query : query + 1],
        task.query_classes[query : query + 1],
        task.items,
        task.item_classes,
        task.own_items[query : query + 1],
    )
    strips = ScoreStrips(alone, memory_budget)
    scores = np.concatenate([strips.scores((0, 1), span)[0].copy() for span in strips.spans])
    order = np.argsort(-scores, kind="stable")
    order = order[np.isfinite(scores[order])]
    right = task.item_classes[order] == task.query_classes[query]
    first = int(np.argmax(right)) if right.any() else len(order)
    shown = order[:results]
    return WorstQuery(
        query=query,
        value=value,
        results=shown.tolist(),
        scores=[float(scores[item]) for item in shown],
        correct=right[:results].tolist(),
        before_first_right=order[: min(first, results)].tolist(),
        first_right_rank=first + 1,
    )


def _confusions(
    task: SearchTask, counted: np.ndarray, names: dict[int, object], most: int, memory_budget: int
) -> list[Confusion]:
    nearest = nearest_items(task, memory_budget)
    taken_for = task.item_classes[nearest]
    wrong = counted & (nearest >= 0) & (taken_for != task.query_classes)
    pairs = Counter(zip(task.query_classes[wrong].tolist(), taken_for[wrong].tolist(), strict=True))
    ranked = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Confusion(names[a], names[b], number) for (a, b), number in ranked[:most]]


def nearest_items(task: SearchTask, memory_budget: int = MEMORY_BUDGET) -> np.ndarray:
    """Return the gallery index of each query's nearest item (Q,), the lower index among equals; -1 if there is none."""
    strips = ScoreStrips(task, memory_budget)
    nearest = np.full(len(task.queries), -1)
    for strip in strips.strips:
        best = np.full(strip[1] - strip[0], -np.inf)
        for span in strips.spans:
            scores = strips.scores(strip, span)
            place = scores.argmax(axis=1)
            there = np.take_along_axis(scores, place[:, None], axis=1)[:, 0].astype(np.float64)
            better = there > best
            nearest[strip[0] : strip[1]][better] = span[0] + place[better]
            best[better] = there[better]
    return nearest


def _names_of_classes(task: SearchTask, labels: Array, gallery_labels: Array | None) -> dict[int, object]:
    """Return the label behind each class number."""
    names: dict[int, object] = {}
    for classes, given in ((task.query_classes, labels), (task.item_classes, gallery_labels)):
        if given is not None:
            plain = given.tolist() if hasattr(given, "tolist") else list(given)  # type: ignore[union-attr]
            names.update(zip(classes.tolist(), plain, strict=True))
    return names
