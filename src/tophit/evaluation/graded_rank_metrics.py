"""Metrics of graded relevance: functions of the ranks and the grades of a query's relevant items.

They are registered like the others, with ``graded=True``: these get all relevant items with their grades, the others
only the right ones. Without grades every relevant item has grade 1, and H-AP is mAP.
"""

from collections.abc import Callable
from functools import wraps

import numpy as np

from tophit.evaluation.relevant import RankedQueries
from tophit.registry import register

_MANY = 32  # different grades, above which it is faster to look at each query alone
GradedMetric = Callable[..., np.ndarray]


def _by_grade(metric: GradedMetric) -> GradedMetric:
    """Let a metric that loops over the different grades look at each query alone where they are many."""

    @wraps(metric)
    def chosen(found: RankedQueries, *options: int) -> np.ndarray:
        if len(found.different_grades) <= _MANY or len(found.counts) == 1:
            return metric(found, *options)
        return np.concatenate([metric(each, *options) for each in found.one_by_one()])

    return chosen


@register("metric", "graded-ndcg", graded=True)
def graded_ndcg(found: RankedQueries, k: int) -> np.ndarray:
    """Return the gains (2^grade - 1) / log2(rank + 1) of the first k results over those of the best order."""
    return _ndcg(found, k, lambda grades: np.exp2(grades) - 1)


@register("metric", "graded-ndcg-linear", graded=True)
def graded_ndcg_linear(found: RankedQueries, k: int) -> np.ndarray:
    """Return what graded-ndcg does with the grade itself as the gain."""
    return _ndcg(found, k, lambda grades: grades)


@register("metric", "H-AP", graded=True)
def hierarchical_ap(found: RankedQueries) -> np.ndarray:
    """Return the hierarchical average precision: 1 / sum_i r_i sum_i (sum_{j <= i} min(r_i, r_j)) / rank_i."""
    return _hierarchical_ap(found)


@register("metric", "ASI", graded=True)
def average_set_intersection(found: RankedQueries) -> np.ndarray:
    """Return the mean over n = 1 .. R of the share of the first n results that are among the best n items."""
    return _average_set_intersection(found)


def _ndcg(found: RankedQueries, k: int, gain: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    near = np.flatnonzero(found.ranks <= k)
    gains = gain(_grades(found)[near].astype(np.float64)) / np.log2(found.ranks[near] + 1)
    reached = np.bincount(found.owners[near], weights=gains, minlength=len(found.counts))
    return reached / _or_nan(_best_gains(found, k, gain))


@_by_grade
def _best_gains(found: RankedQueries, k: int, gain: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return each query's discounted gains of the best order: the highest grades first, down to k results."""
    discounts = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
    best, placed = np.zeros(len(found.counts)), np.zeros(len(found.counts), np.int64)
    for grade in found.different_grades[::-1]:
        filled = placed + _counts_of(found, _grades(found) == grade)
        best += gain(np.asarray(float(grade))) * (discounts[np.minimum(filled, k)] - discounts[np.minimum(placed, k)])
        placed = filled
    return best


@_by_grade
def _hierarchical_ap(found: RankedQueries) -> np.ndarray:
    """Add up min(r_i, r_j) by the steps between neighbouring grades that both reach: one pass per grade is enough."""
    grades, total, below = _grades(found), np.zeros(len(found.counts)), 0.0
    for grade in found.different_grades:
        reach = grades >= grade
        every = bool(reach.all())
        ranks = found.ranks if every else found.ranks[reach]
        counts = found.counts if every else _counts_of(found, reach)
        starts = np.cumsum(counts) - counts
        nth = np.arange(1, len(ranks) + 1) - np.repeat(starts, counts)
        total += (float(grade) - below) * _sums(nth / ranks, counts)
        below = float(grade)
    return total / _or_nan(_sums(grades.astype(np.float64), found.counts))


@_by_grade
def _average_set_intersection(found: RankedQueries) -> np.ndarray:
    """Count, grade by grade, the results among the first n that have a place among the best n items."""
    starts = np.cumsum(found.counts) - found.counts
    n = np.arange(1, len(found.ranks) + 1) - np.repeat(starts, found.counts)
    near = np.flatnonzero(found.ranks <= np.repeat(found.counts, found.counts))
    slots = (starts[found.owners] + found.ranks - 1)[near]  # n equals the rank there
    grades, both, higher = _grades(found), np.zeros(len(n)), np.zeros(len(found.counts), np.int64)
    for grade in found.different_grades[::-1]:
        held = _counts_of(found, grades == grade)
        arrived = np.bincount(slots[grades[near] == grade], minlength=len(n)).cumsum()
        before = np.concatenate([[0], arrived])[starts]
        seen = arrived - np.repeat(before, found.counts)
        places = np.clip(n - np.repeat(higher, found.counts), 0, np.repeat(held, found.counts))
        both += np.minimum(seen, places)
        higher = higher + held
    return _sums(both / n, found.counts) / _or_nan(found.counts)


def _grades(found: RankedQueries) -> np.ndarray:
    return np.ones(len(found.ranks)) if found.grades is None else found.grades


def _counts_of(found: RankedQueries, chosen: np.ndarray) -> np.ndarray:
    """Return how many of the chosen relevant items (items,) each query has."""
    return np.bincount(found.owners[chosen], minlength=len(found.counts))


def _sums(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the sum of each query's values; ``counts`` (queries,) says how many it has."""
    sums = np.zeros(len(counts))
    filled = counts > 0
    if len(values):
        sums[filled] = np.add.reduceat(values, (np.cumsum(counts) - counts)[filled])
    return sums


def _or_nan(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, np.nan)
