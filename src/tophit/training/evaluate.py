"""From an embedder and a manifest's rows to metrics: query and gallery roles, bad images, intervals."""

from collections.abc import Callable, Sequence

import numpy as np

from tophit.data.embedding import embed_rows
from tophit.data.manifest import ImageRow
from tophit.errors import TophitError
from tophit.evaluation import RetrievalMetrics, retrieval_metrics
from tophit.models.embedder import Embedder
from tophit.progress import Progress


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
    vectors: np.ndarray, rows: Sequence[ImageRow], confidence: float | None = None, metrics: Sequence[str] = ()
) -> RetrievalMetrics:
    """Return retrieval metrics of vectors (N, d) of rows (N); ``metrics`` such as ``recall@16`` join the usual ones."""
    if len(rows) < 2:
        raise TophitError(f"Retrieval needs at least two readable images to evaluate on; there are {len(rows)}.")
    if not np.isfinite(vectors).all():
        raise TophitError(
            "The model's vectors are not finite numbers: its training diverged; lower the learning rates."
        )
    labels = np.asarray([row.label for row in rows])
    roles = np.asarray([row.role for row in rows])
    extra = {"recall": {1, 2, 4, 8}, "precision": {1, 5, 10}, "ndcg": {2, 4, 8}}
    for name in metrics:
        kind, _, k = name.partition("@")
        if kind in extra:
            extra[kind].add(int(k))
    at = {f"{kind}_at": sorted(ks) for kind, ks in extra.items()}
    if (roles == "both").all():
        return retrieval_metrics(vectors, labels, confidence=confidence, **at)  # type: ignore[arg-type]
    query, gallery = np.flatnonzero(roles != "gallery"), np.flatnonzero(roles != "query")
    if not len(query) or not len(gallery):
        raise TophitError("The manifest's roles leave no query or no gallery image to evaluate on.")
    place = np.full(len(rows), -1)
    place[gallery] = np.arange(len(gallery))
    return retrieval_metrics(
        vectors[query],
        labels[query],
        vectors[gallery],
        labels[gallery],
        confidence=confidence,
        own_items=place[query],
        **at,  # type: ignore[arg-type]
    )
