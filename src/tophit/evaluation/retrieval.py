"""Retrieval metrics, exact over the full ranking, from one chunked pass over the similarities.

Ranking is by cosine similarity, ties by the lower gallery index. Without a gallery every item queries all others and is
itself left out by its index, so a duplicate of a query still counts as a result.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tophit.evaluation.confidence import Unit, bootstrap_intervals
from tophit.evaluation.inputs import MEMORY_BUDGET, Array, as_vectors, check_level, encode_labels
from tophit.evaluation.ranks import relevant_ranks
from tophit.evaluation.relevant import RelevantRanks
from tophit.evaluation.reranked import reranked_ranks
from tophit.evaluation.similarity import SearchTask
from tophit.reranking import Reranking


class RetrievalMetrics(dict[str, float]):
    """Metric name to mean over queries, as a fraction.

    ``per_query`` holds every query's value (NaN for a skipped query); ``intervals`` the confidence interval of each
    mean, if asked for.
    """

    def __init__(
        self,
        means: Mapping[str, float],
        per_query: Mapping[str, np.ndarray],
        intervals: Mapping[str, tuple[float, float]],
    ) -> None:
        super().__init__(means)
        self.per_query = dict(per_query)
        self.intervals = dict(intervals)


def retrieval_metrics(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    recall_at: Sequence[int] = (1, 2, 4, 8),
    precision_at: Sequence[int] = (1, 5, 10),
    ndcg_at: Sequence[int] = (2, 4, 8),
    confidence: float | None = None,
    queries_without_positives: str = "skip",
    own_items: Array | None = None,
    *,
    map_at: Sequence[int] = (),
    confidence_over: Unit = "classes",
    memory_budget: int = MEMORY_BUDGET,
    rerank: Reranking | None = None,
) -> RetrievalMetrics:
    """Return recall@k (hit rate), precision@k, nDCG@k, MAP@k, mAP, MAP@R and R-precision of embeddings (N, d).

    With R relevant items for a query, at ranks r_1 < ... < r_R: recall@k is 1 if r_1 <= k; precision@k = |{r_i <= k}|/k
    (k may exceed the gallery); mAP averages AP = 1/R sum_i i/r_i; MAP@R = 1/R sum_{r_i <= R} i/r_i, and MAP@k the same
    with k for R; R-precision = |{r_i <= R}|/R; nDCG@k = sum_{r_i <= k} 1/log2(r_i + 1) over the same sum of min(k, R)
    items in front.

    Labels are any integers or strings. With ``gallery`` (M, d) and ``gallery_labels`` the embeddings search the
    gallery, else each other. Where some queries are in the gallery too, ``own_items`` gives each query's gallery index,
    -1 for none; that item is left out of its ranking. ``confidence`` (such as 0.95) adds bootstrap intervals over
    classes, or over queries with ``confidence_over="queries"``. Queries without a relevant item are left out of the
    means (``"skip"``) or count as 0 (``"zero"``). ``rerank`` orders each
    query's first results anew. Beyond the inputs it holds about ``memory_budget`` bytes at most.

    >>> retrieval_metrics([[1, 0], [0.9, 0.1], [0, 1], [0.2, 1]], ["a", "a", "b", "b"])["recall@1"]
    1.0
    """
    if queries_without_positives not in ("skip", "zero"):
        raise ValueError(f"queries_without_positives is 'skip' or 'zero', not '{queries_without_positives}'")
    if any(k < 1 for k in (*recall_at, *precision_at, *ndcg_at, *map_at)):
        raise ValueError("every k must be at least 1")
    if confidence is not None:
        check_level(confidence)
    task = search_task(embeddings, labels, gallery, gallery_labels, own_items)
    ks = (recall_at, precision_at, ndcg_at, map_at)
    found = relevant_ranks(task, memory_budget) if rerank is None else reranked_ranks(task, rerank, memory_budget)
    parts = [metrics_of_ranks(ranks, *ks) for ranks in found]
    per_query = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if queries_without_positives == "zero":
        per_query = {name: np.nan_to_num(values, nan=0.0) for name, values in per_query.items()}
    means = {name: _mean(values) for name, values in per_query.items()}
    intervals = (
        {} if confidence is None else bootstrap_intervals(per_query, task.query_classes, confidence, confidence_over)
    )
    return RetrievalMetrics(means, per_query, intervals)


def search_task(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    own_items: Array | None = None,
) -> SearchTask:
    """Return the checked task of queries that search a gallery or, without one, each other."""
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("gallery and gallery_labels go together: give both or none")
    queries = as_vectors(embeddings)
    if gallery is None or gallery_labels is None:
        if own_items is not None:
            raise ValueError("own_items says where queries stand in a gallery; without a gallery leave it out")
        (classes,) = encode_labels(labels)
        return SearchTask(queries, classes, queries, classes, np.arange(len(queries)))
    query_classes, item_classes = encode_labels(labels, gallery_labels)
    own = np.full(len(queries), -1) if own_items is None else np.asarray(own_items).astype(np.int64)
    return SearchTask(queries, query_classes, as_vectors(gallery, "gallery"), item_classes, own)


def metrics_of_ranks(
    found: RelevantRanks,
    recall_at: Sequence[int],
    precision_at: Sequence[int],
    ndcg_at: Sequence[int],
    map_at: Sequence[int] = (),
) -> dict[str, np.ndarray]:
    """Return each metric of each query from the ranks of its relevant items; NaN for a query that has none."""
    totals = found.counts
    owners = np.repeat(np.arange(len(totals)), totals)
    nth = np.arange(1, len(owners) + 1) - np.repeat(np.cumsum(totals) - totals, totals)
    ranks = found.ranks
    precision_there = nth / ranks
    within_total = ranks <= totals[owners]
    denominator = np.where(totals > 0, totals, np.nan)

    def summed(values: np.ndarray) -> np.ndarray:
        return np.bincount(owners, weights=values, minlength=len(totals))

    def among_first(k: int) -> np.ndarray:
        return summed(ranks <= k)

    values = {f"recall@{k}": (among_first(k) > 0).astype(np.float64) for k in recall_at}
    values |= {f"precision@{k}": among_first(k) / k for k in precision_at}
    if ndcg_at:
        gain = 1 / np.log2(ranks + 1)
        most = int(min(max(ndcg_at), totals.max(initial=0)))
        ideal = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(most) + 2))])
        best = {k: np.where(totals > 0, ideal[np.minimum(totals, min(k, most))], np.nan) for k in ndcg_at}
        values |= {f"ndcg@{k}": summed(gain * (ranks <= k)) / best[k] for k in ndcg_at}
    values |= {f"MAP@{k}": summed(precision_there * (ranks <= k)) / k for k in map_at}
    values["mAP"] = summed(precision_there) / denominator
    values["MAP@R"] = summed(precision_there * within_total) / denominator
    values["R-precision"] = summed(within_total) / denominator
    return {name: np.where(totals > 0, value, np.nan) for name, value in values.items()}


def _mean(values: np.ndarray) -> float:
    """Return the mean of the values that are not NaN; NaN if there is none."""
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else float("nan")
