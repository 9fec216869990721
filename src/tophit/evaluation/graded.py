"""Metrics of graded relevance: nDCG@k and hierarchical average precision, exact, a few queries at a time.

Both need only the ranks of the items whose grade is above 0, so no ranking is kept: a query's scores are sorted, and
the rank of an item follows from its place among them. Ties go to the lower gallery index, as everywhere.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tophit.evaluation.confidence import bootstrap_intervals
from tophit.evaluation.inputs import MEMORY_BUDGET, Array, check_level
from tophit.evaluation.relevance import Relevance
from tophit.evaluation.retrieval import RetrievalMetrics
from tophit.evaluation.scores import ScoreStrips, search_task

Gain = Literal["exponential", "linear"]


def graded_metrics(
    embeddings: Array,
    relevance: Relevance | Array,
    ndcg_at: Sequence[int] = (5, 10),
    *,
    gallery: Array | None = None,
    own_items: Array | None = None,
    gain: Gain = "exponential",
    classes: Array | None = None,
    confidence: float | None = None,
    memory_budget: int = MEMORY_BUDGET,
) -> RetrievalMetrics:
    """Return nDCG@k and H-AP of embeddings (N, d), whose results have grades r instead of being right or wrong.

    With the items in the order of a query's results, nDCG@k = sum_{i <= k} g(r_i) / log2(i + 1) over the same sum of
    the best order; g(r) = 2^r - 1, or r with ``gain="linear"``. H-AP = 1 / sum_i r_i sum_i r_i^H / i with
    r_i^H = sum_{j <= i} min(r_i, r_j), over the relevant i (Ramzi et al., ECCV 2022); with grades 0 and 1 it is mAP.

    ``relevance`` is a :class:`Relevance` or a matrix of grades (N, M). Without ``gallery`` (M, d) the embeddings search
    each other, each without itself; ``own_items`` as in ``retrieval_metrics``. Queries with nothing relevant are left
    out of the means. ``confidence`` (such as 0.95) adds bootstrap intervals over ``classes`` (N,), or over queries if
    they are not given; ``per_query`` goes into ``paired_difference``.

    >>> grades = [[0, 2, 1], [2, 0, 0], [1, 0, 0]]
    >>> found = graded_metrics([[1, 0], [0.8, 0.6], [0.9, 0.1]], grades, ndcg_at=(2,))
    >>> {name: round(value, 3) for name, value in found.items()}
    {'ndcg@2': 0.809, 'H-AP': 0.778}
    """
    if any(k < 1 for k in ndcg_at):
        raise ValueError("every k must be at least 1")
    if gain not in ("exponential", "linear"):
        raise ValueError(f"gain must be 'exponential' or 'linear', not '{gain}'")
    if confidence is not None:
        check_level(confidence)
    grades = relevance if isinstance(relevance, Relevance) else Relevance.of_matrix(relevance)
    no_labels = [np.zeros(len(each), np.int64) for each in (embeddings, gallery) if each is not None]
    task = search_task(embeddings, no_labels[0], gallery, no_labels[1] if gallery is not None else None, own_items)
    if grades.shape != (len(task.queries), len(task.items)):
        raise ValueError(f"relevance has shape {grades.shape}, but there are {len(task.queries)} queries and "
                         f"{len(task.items)} items")  # fmt: skip
    names = [*(f"ndcg@{k}" for k in ndcg_at), "H-AP"]
    table = np.full((len(task.queries), len(names)), np.nan)
    strips = ScoreStrips(task, memory_budget)
    for strip in strips.strips:
        scores = np.concatenate([strips.scores(strip, span).copy() for span in strips.spans], axis=1)
        for number in range(*strip):
            of_items = grades.rows(number, number + 1)[0]
            own = task.own_items[number]
            if own >= 0:
                of_items[own] = 0
            relevant = np.flatnonzero(of_items > 0)
            if len(relevant):
                ranks = _ranks(scores[number - strip[0]], relevant)
                table[number] = _of_query(ranks, of_items[relevant], ndcg_at, gain)
    per_query = dict(zip(names, table.T, strict=True))
    counted = ~np.isnan(table).any(axis=1)
    means = {
        name: float(values[counted].mean()) if counted.any() else float("nan") for name, values in per_query.items()
    }
    intervals = {}
    if confidence is not None:
        units = np.arange(len(table)) if classes is None else classes
        intervals = bootstrap_intervals(per_query, units, confidence)
    return RetrievalMetrics(means, per_query, intervals)


def _ranks(scores: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Return the ranks, from 1, of some items (R,) by the scores (M,) of all; of equal ones the lower index first."""
    ordered = np.sort(scores)
    wanted = scores[relevant]
    above = len(ordered) - np.searchsorted(ordered, wanted, "right")
    equal = len(ordered) - above - np.searchsorted(ordered, wanted, "left")
    for place in np.flatnonzero(equal > 1):
        above[place] += np.count_nonzero(scores[: relevant[place]] == wanted[place])
    return above + 1


def _of_query(ranks: np.ndarray, grades: np.ndarray, ndcg_at: Sequence[int], gain: Gain) -> list[float]:
    """Return nDCG at each k and H-AP of one query from the ranks and grades (R,) of its relevant items."""
    order = np.argsort(ranks)
    ranks, grades = ranks[order], grades[order]
    gains = np.exp2(grades) - 1 if gain == "exponential" else grades
    best = np.sort(gains)[::-1]
    discounts = 1 / np.log2(ranks + 1)
    best_discounts = 1 / np.log2(np.arange(2, len(best) + 2))
    found = [float((gains * discounts)[ranks <= k].sum() / (best * best_discounts)[:k].sum()) for k in ndcg_at]
    return [*found, _graded_ap(ranks, grades)]


def _graded_ap(ranks: np.ndarray, grades: np.ndarray) -> float:
    """Return H-AP of relevant items (R,) in the order of their ranks.

    min(r_i, r_j) is the sum of the steps between neighbouring grades that both reach, so one pass per grade is enough.
    """
    total, below = 0.0, 0.0
    for grade in np.unique(grades):
        reach = grades >= grade
        total += (grade - below) * float((np.cumsum(reach) / ranks)[reach].sum())
        below = grade
    return total / float(grades.sum())
