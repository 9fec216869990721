"""From an embedder and a manifest's rows to metrics: query and gallery roles, bad images, intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.embedding.rows import embed_rows
from tophit.errors import TophitError
from tophit.evaluation import RetrievalMetrics, retrieval_metrics
from tophit.models.embedder import Embedder
from tophit.progress import Progress
from tophit.reranking import Reranking


def evaluate_rows(
    embedder: Embedder,
    rows: Sequence[ImageRow],
    confidence: float | None = None,
    on_bad: Callable[[int, str], None] | None = None,
    progress: Progress | None = None,
) -> RetrievalMetrics:
    """Return retrieval metrics of the embedder on rows.

    Rows with the role query search those with the role gallery; without such roles every image queries all others.
    An unreadable image goes to ``on_bad`` (row number from 0, reason) and is left out; without it, it raises.
    """
    embedded = embed_rows(embedder, rows, progress)
    for row, reason in embedded.bad.items():
        if on_bad is None:
            raise TophitError(f"row {row + 1}: {reason}")
        on_bad(row, reason)
    return metrics_of_vectors(embedded.vectors, [rows[i] for i in embedded.rows], confidence)


def metrics_of_vectors(
    vectors: np.ndarray,
    rows: Sequence[ImageRow],
    confidence: float | None = None,
    metrics: Sequence[str] = (),
    rerank: Reranking | None = None,
) -> RetrievalMetrics:
    """Return retrieval metrics of vectors (N, d) of rows (N); ``metrics`` such as ``recall@16`` are extra."""
    if len(rows) < 2:
        raise TophitError(f"Retrieval needs at least two readable images to evaluate on; there are {len(rows)}.")
    if not np.isfinite(vectors).all():
        raise TophitError(
            "The model's vectors are not finite numbers: its training diverged; lower the learning rates."
        )
    return retrieval_metrics(
        **search_arrays(vectors, rows).arguments, confidence=confidence, rerank=rerank, metrics=metrics
    )


@dataclass(frozen=True)
class SearchArrays:
    """The rows that search (``query``) and that are searched (``gallery``), and the same as arguments of metrics."""

    query: np.ndarray
    gallery: np.ndarray
    arguments: dict[str, Any]


def search_arrays(vectors: np.ndarray, rows: Sequence[ImageRow]) -> SearchArrays:
    """Return the arrays for ``retrieval_metrics`` of vectors (N, d) of rows (N), by the roles of the rows."""
    labels = np.asarray([row.label for row in rows])
    roles = np.asarray([row.role for row in rows])
    if (roles == "both").all():
        everyone = np.arange(len(rows))
        return SearchArrays(everyone, everyone, {"embeddings": vectors, "labels": labels})
    query, gallery = np.flatnonzero(roles != "gallery"), np.flatnonzero(roles != "query")
    if not len(query) or not len(gallery):
        raise TophitError("The manifest's roles leave no query or no gallery image to evaluate on.")
    place = np.full(len(rows), -1)
    place[gallery] = np.arange(len(gallery))
    arguments = {
        "embeddings": vectors[query],
        "labels": labels[query],
        "gallery": vectors[gallery],
        "gallery_labels": labels[gallery],
        "own_items": place[query],
    }
    return SearchArrays(query, gallery, arguments)
