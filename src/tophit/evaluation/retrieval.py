"""Retrieval metrics, exact over the full ranking, from one chunked pass over the similarities.

Ranking is by cosine similarity, ties by the lower gallery index. Without a gallery every item queries all others. The
query itself is left out by its index, so a duplicate of it still counts as a result.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tophit.errors import UsageError
from tophit.evaluation.confidence import Unit, bootstrap_intervals
from tophit.evaluation.inputs import MEMORY_BUDGET, Array, check_level
from tophit.evaluation.rank_metrics import Metric, parse_metric
from tophit.evaluation.ranks import relevant_ranks
from tophit.evaluation.relevance import Relevance
from tophit.evaluation.reranked import reranked_ranks
from tophit.evaluation.scores import search_task
from tophit.reranking import Reranking
from tophit.tables import as_html, metric_list

_WITHOUT_K: tuple[str, ...] = ("mAP", "MAP@R", "R-precision")


class RetrievalMetrics(dict[str, float]):
    """Metric name to mean over queries, as a fraction.

    ``per_query`` has every query's value (NaN for a skipped query); ``intervals`` the confidence interval of each
    mean, if requested.
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

    def _repr_html_(self) -> str:
        return as_html(metric_list(self, self.intervals))


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
    metrics: Sequence[str] = (),
    relevance: Relevance | None = None,
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
    means (``"skip"``) or count as 0 (``"zero"``). ``rerank`` re-ranks each query's first results. ``metrics`` are the
    names of further metrics: ``recall@16``, or ``package.module:function`` for your own (``rank_metrics``).
    ``relevance`` (N, M) says what is relevant instead of equal labels, which then only group queries for the intervals;
    metrics such as ``H-AP`` look at its grades. Beyond the inputs it needs about ``memory_budget`` bytes at most.

    >>> retrieval_metrics([[1, 0], [0.9, 0.1], [0, 1], [0.2, 1]], ["a", "a", "b", "b"])["recall@1"]
    1.0
    """
    if queries_without_positives not in ("skip", "zero"):
        raise ValueError(f"queries_without_positives must be 'skip' or 'zero', not '{queries_without_positives}'")
    if any(k < 1 for k in (*recall_at, *precision_at, *ndcg_at, *map_at)):
        raise ValueError("every k must be at least 1")
    if confidence is not None:
        check_level(confidence)
    at = {"recall": recall_at, "precision": precision_at, "ndcg": ndcg_at, "MAP": map_at}
    wanted = _wanted(at, metrics)
    levels = 0 if relevance is None else relevance.levels
    if wrong := next((metric.name for metric in wanted if (metric.level or 0) > levels), None):
        has = f"it has {levels} levels" if levels else "the labels have no levels"
        raise UsageError(f"The metric {wrong} needs a hierarchy with that level, but {has}.")
    task = search_task(embeddings, labels, gallery, gallery_labels, own_items, relevance)
    found = relevant_ranks(task, memory_budget) if rerank is None else reranked_ranks(task, rerank, memory_budget)
    parts = [[metric(ranks) for metric in wanted] for ranks in found]
    per_query = {
        metric.name: np.concatenate(values) for metric, values in zip(wanted, zip(*parts, strict=True), strict=True)
    }
    if queries_without_positives == "zero":
        per_query = {name: np.nan_to_num(values, nan=0.0) for name, values in per_query.items()}
    means = {name: _mean(values) for name, values in per_query.items()}
    intervals = (
        {} if confidence is None else bootstrap_intervals(per_query, task.query_classes, confidence, confidence_over)
    )
    return RetrievalMetrics(means, per_query, intervals)


def _wanted(at: dict[str, Sequence[int]], further: Sequence[str]) -> list[Metric]:
    """Return the metrics at each k, those without k, and the further ones, each once and next to its kind."""
    own: dict[str, list[int]] = {kind: list(dict.fromkeys(ks)) for kind, ks in at.items()}
    others = dict.fromkeys(_WITHOUT_K)
    for metric in map(parse_metric, further):
        if metric.level is not None or metric.kind not in own:
            others[metric.name] = None
        elif metric.k is not None and metric.k not in own[metric.kind]:
            own[metric.kind] = sorted([*own[metric.kind], metric.k])
    return [parse_metric(name) for name in (*(f"{kind}@{k}" for kind, ks in own.items() for k in ks), *others)]


def _mean(values: np.ndarray) -> float:
    """Return the mean of the values that are not NaN; NaN if there is none."""
    counted = values[~np.isnan(values)]
    return float(counted.mean()) if len(counted) else float("nan")
