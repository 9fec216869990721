"""Retrieval metrics, exact over the full ranking, computed chunk by chunk.

Ranking is by cosine similarity, ties by the lower gallery index. Without a gallery every item queries all others and is
itself left out by its index, so a duplicate of a query still counts as a result.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tophit.evaluation.confidence import class_bootstrap

Array = np.ndarray | torch.Tensor | Sequence[Any]
_CHUNK_BYTES = 32 * 2**20  # of similarities; the ranking and its sums take about 15 times as much


class RetrievalMetrics(dict[str, float]):
    """Metric name to mean over queries, as a fraction.

    ``per_query`` holds every query's value (NaN for a skipped query); ``intervals`` the confidence interval of each
    mean, if asked for.
    """

    def __init__(
        self, means: dict[str, float], per_query: dict[str, np.ndarray], intervals: dict[str, tuple[float, float]]
    ) -> None:
        super().__init__(means)
        self.per_query = per_query
        self.intervals = intervals


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
) -> RetrievalMetrics:
    """Return recall@k (hit rate), precision@k, nDCG@k, mAP, MAP@R and R-precision of embeddings (N, d).

    Labels are any integers or strings. With ``gallery`` (M, d) and ``gallery_labels`` the embeddings search the
    gallery, else each other. ``confidence`` (such as 0.95) adds bootstrap intervals over classes. Queries without a
    relevant item are left out of the means (``"skip"``) or count as 0 (``"zero"``). Where some queries are in the
    gallery too, ``own_items`` gives each query's gallery index, -1 for none; that item is left out of its ranking.
    """
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("gallery and gallery_labels go together")
    if queries_without_positives not in ("skip", "zero"):
        raise ValueError(f"queries_without_positives is 'skip' or 'zero', not '{queries_without_positives}'")
    if any(k < 1 for k in (*recall_at, *precision_at, *ndcg_at)):
        raise ValueError("every k must be at least 1")
    queries = _unit_rows(embeddings, "embeddings")
    items = queries if gallery is None else _unit_rows(gallery, "gallery")
    query_classes, item_classes = _encode(labels, labels if gallery_labels is None else gallery_labels)
    _check_lengths(queries, query_classes, items, item_classes)
    if gallery is None:
        own_items = np.arange(len(queries))
    own = torch.full((len(queries),), -1) if own_items is None else torch.as_tensor(np.asarray(own_items)).long()
    parts = [
        _metrics_of_ranking(relevant, recall_at, precision_at, ndcg_at)
        for relevant in _rankings(queries, query_classes, items, item_classes, own.to(queries.device))
    ]
    per_query = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return _summarise(per_query, query_classes, confidence, queries_without_positives)


def _unit_rows(vectors: Array, name: str) -> torch.Tensor:
    rows = torch.as_tensor(np.asarray(vectors) if not isinstance(vectors, torch.Tensor) else vectors).detach()
    if rows.ndim != 2 or rows.shape[0] == 0:
        raise ValueError(f"{name} must have shape (N, d) with N >= 1, got {tuple(rows.shape)}")
    rows = rows if rows.dtype == torch.float64 else rows.float()
    if not torch.isfinite(rows).all():
        raise ValueError(f"{name} contain NaN or infinite values")
    return torch.nn.functional.normalize(rows, dim=1)


def _encode(labels: Array, other: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return both label lists as integers from 0, equal where the labels (strings, integers of any size) are."""
    codes: dict[Hashable, int] = {}
    lists = [x.tolist() if isinstance(x, np.ndarray | torch.Tensor) else list(x) for x in (labels, other)]
    first, second = ([codes.setdefault(label, len(codes)) for label in each] for each in lists)
    return np.asarray(first, np.int64), np.asarray(second, np.int64)


def _check_lengths(queries: torch.Tensor, classes: np.ndarray, items: torch.Tensor, item_classes: np.ndarray) -> None:
    for rows, codes, name in ((queries, classes, "embeddings"), (items, item_classes, "gallery")):
        if len(rows) != len(codes):
            raise ValueError(f"{len(rows)} {name} but {len(codes)} labels")
    if queries.shape[1] != items.shape[1]:
        raise ValueError(f"embeddings have {queries.shape[1]} dimensions, the gallery {items.shape[1]}")


def _rankings(
    queries: torch.Tensor, classes: np.ndarray, items: torch.Tensor, item_classes: np.ndarray, own: torch.Tensor
) -> Iterator[torch.Tensor]:
    """Yield, chunk by chunk, whether the item at each rank is relevant: bool (queries in the chunk, ranks).

    A query's own item goes to the end of its ranking, as not relevant.
    """
    query_labels = torch.from_numpy(classes).to(queries.device)
    item_labels = torch.from_numpy(item_classes).to(queries.device)
    chunk = max(1, _CHUNK_BYTES // (items.element_size() * len(items)))
    for start in range(0, len(queries), chunk):
        part = slice(start, start + chunk)
        similarity = queries[part] @ items.T
        relevant = item_labels == query_labels[part, None]
        with_own = (own[part] >= 0).nonzero().squeeze(1)
        similarity[with_own, own[part][with_own]] = float("-inf")
        relevant[with_own, own[part][with_own]] = False
        order = similarity.argsort(dim=1, descending=True, stable=True)
        yield relevant.gather(1, order)


def _metrics_of_ranking(
    relevant: torch.Tensor, recall_at: Sequence[int], precision_at: Sequence[int], ndcg_at: Sequence[int]
) -> dict[str, np.ndarray]:
    """Return each metric of each query; ``relevant`` (Q, n) says which ranks hold a relevant item (SPEC, Metrics)."""
    hits = relevant.double()
    found = hits.cumsum(dim=1)  # relevant items in the first i
    total = found[:, -1:]
    ranks = torch.arange(1, relevant.shape[1] + 1, device=relevant.device, dtype=torch.float64)
    precision = found / ranks
    safe_total = total.squeeze(1).clamp(min=1)
    within_total = ranks <= total

    def first(k: int) -> torch.Tensor:
        return hits[:, :k].sum(dim=1)

    def ndcg(k: int) -> torch.Tensor:
        discount = 1 / torch.log2(ranks[:k] + 1)
        best = torch.cat([discount.new_zeros(1), discount.cumsum(0)])
        ideal = best[total.squeeze(1).long().clamp(max=len(discount))]
        return (hits[:, :k] * discount).sum(dim=1) / ideal.clamp(min=1e-300)

    values = {f"recall@{k}": (first(k) > 0).double() for k in recall_at}
    values |= {f"precision@{k}": first(k) / k for k in precision_at}
    values |= {f"ndcg@{k}": ndcg(k) for k in ndcg_at}
    values["mAP"] = (precision * hits).sum(dim=1) / safe_total
    values["MAP@R"] = (precision * hits * within_total).sum(dim=1) / safe_total
    values["R-precision"] = (hits * within_total).sum(dim=1) / safe_total
    no_positive = total.squeeze(1) == 0
    return {name: value.masked_fill(no_positive, float("nan")).cpu().numpy() for name, value in values.items()}


def _summarise(
    per_query: dict[str, np.ndarray], classes: np.ndarray, confidence: float | None, without_positives: str
) -> RetrievalMetrics:
    if without_positives == "zero":
        per_query = {name: np.nan_to_num(values, nan=0.0) for name, values in per_query.items()}
    counted = ~np.isnan(next(iter(per_query.values())))
    means = {name: float(v[counted].mean()) if counted.any() else float("nan") for name, v in per_query.items()}
    intervals: dict[str, tuple[float, float]] = {}
    if confidence is not None and counted.any():
        if not 0 < confidence < 1:
            raise ValueError(f"confidence is a level between 0 and 1, not {confidence}")
        intervals = {
            name: class_bootstrap(values[counted], classes[counted], confidence) for name, values in per_query.items()
        }
    return RetrievalMetrics(means, per_query, intervals)
