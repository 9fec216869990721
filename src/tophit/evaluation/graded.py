"""Metrics of graded relevance for any grades: nDCG@k and hierarchical average precision."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from tophit.evaluation.inputs import MEMORY_BUDGET, Array
from tophit.evaluation.relevance import Relevance
from tophit.evaluation.retrieval import RetrievalMetrics, retrieval_metrics

Gain = Literal["exponential", "linear"]
_NAMES: dict[str, str] = {"exponential": "graded-ndcg", "linear": "graded-ndcg-linear"}


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
    grades = relevance if isinstance(relevance, Relevance) else Relevance.of_matrix(relevance)
    units = [np.arange(len(each)) for each in (embeddings, gallery) if each is not None]
    names = {f"ndcg@{k}": f"{_NAMES[gain]}@{k}" for k in ndcg_at} | {"H-AP": "H-AP"}
    found = retrieval_metrics(
        embeddings,
        units[0] if classes is None else classes,
        gallery,
        None if gallery is None else units[1],
        *((), (), ()),
        confidence,
        own_items=own_items,
        memory_budget=memory_budget,
        metrics=list(names.values()),
        relevance=grades,
    )
    return RetrievalMetrics(
        {own: found[name] for own, name in names.items()},
        {own: found.per_query[name] for own, name in names.items()},
        {own: found.intervals[name] for own, name in names.items() if found.intervals},
    )
