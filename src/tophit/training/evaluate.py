"""From an embedder and rows to metrics: roles, bad images, intervals, named test sets, clusters, distances."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.embedding.rows import embed_rows
from tophit.errors import TophitError, UsageError
from tophit.evaluation import RetrievalMetrics, class_spread, clustering_metrics, retrieval_metrics
from tophit.evaluation.protocols import vehicle_id_metrics
from tophit.models.embedder import Embedder
from tophit.progress import Progress
from tophit.recipe.sections import SPREAD, Protocol
from tophit.reranking import Reranking
from tophit.training.row_relevance import relevance_of_rows
from tophit.training.wanted import BY_LABELS, DRAWN_GALLERIES, Judging

_COLUMN = "test_sets"  # manifest column: the names, separated by blanks, of the test sets an image belongs to
_DRAWS = 10


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
    judging: Judging = BY_LABELS,
) -> RetrievalMetrics:
    """Return retrieval metrics of vectors (N, d) of rows (N); ``metrics`` such as ``recall@16`` are extra."""
    if len(rows) < 2:
        raise TophitError(f"Retrieval needs at least two readable images to evaluate on; there are {len(rows)}.")
    if not np.isfinite(vectors).all():
        raise TophitError(
            "The model's vectors are not finite numbers: its training diverged; lower the learning rates."
        )
    search = search_arrays(vectors, rows, judging, metrics)
    return retrieval_metrics(**search.arguments, confidence=confidence, rerank=rerank, metrics=metrics)


@dataclass(frozen=True)
class SearchArrays:
    """The rows that search (``query``) and that are searched (``gallery``), and the same as arguments of metrics."""

    query: np.ndarray
    gallery: np.ndarray
    arguments: dict[str, Any]


def search_arrays(
    vectors: np.ndarray, rows: Sequence[ImageRow], judging: Judging = BY_LABELS, metrics: Sequence[str] = ()
) -> SearchArrays:
    """Return the arrays for ``retrieval_metrics`` of vectors (N, d) of rows (N), by the roles of the rows.

    They hold a ``relevance`` where equal labels don't say what the metrics need.
    """
    labels = np.asarray([row.label for row in rows])
    roles = np.asarray([row.role for row in rows])
    if (roles == "both").all():
        everyone = np.arange(len(rows))
        return SearchArrays(
            everyone,
            everyone,
            {
                "embeddings": vectors,
                "labels": labels,
                "relevance": relevance_of_rows(rows, rows, judging, metrics),
            },
        )
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
        "relevance": relevance_of_rows(
            [rows[i] for i in query.tolist()], [rows[i] for i in gallery.tolist()], judging, metrics
        ),
    }
    return SearchArrays(query, gallery, arguments)


def named_set_metrics(
    vectors: np.ndarray,
    rows: Sequence[ImageRow],
    protocol: Protocol = DRAWN_GALLERIES,
    seed: int = 0,
    metrics: Sequence[str] = (),
) -> dict[str, dict[str, float]]:
    """Return the metrics of each test set named in the manifest's column ``test_sets``; none without that column.

    ``drawn-galleries`` is VehicleID's own protocol: one random image of every class is the gallery, the others are
    queries; the mean of ten draws by ``seed``. ``all`` ranks, for every image of a set, all its others (PNP).
    ``vectors`` (N, d) belong to ``rows`` (N); ``metrics`` such as ``recall@20`` are extra.
    """
    members: dict[str, list[int]] = {}
    for number, row in enumerate(rows if rows and rows[0].kind != "several" else ()):  # the protocols draw classes
        for name in str(row.metadata.get(_COLUMN) or "").split():
            members.setdefault(name, []).append(number)
    options: dict[str, Any] = {"recall_at": (1, 5, 10), "metrics": metrics}
    found = {}
    for name, numbers in members.items():
        labels = [rows[number].label for number in numbers]
        if len(set(labels)) == len(labels):
            continue
        if protocol == DRAWN_GALLERIES:
            sets = {name: sorted(set(labels))}
            found[name] = vehicle_id_metrics(vectors[numbers], labels, sets, _DRAWS, seed, **options)[name]
        else:
            found[name] = dict(retrieval_metrics(vectors[numbers], labels, **options))
    return found


def spread_metrics(vectors: np.ndarray, rows: Sequence[ImageRow], names: Iterable[str]) -> dict[str, float]:
    """Return those of dists@intra and dists@inter that are among the names: cosine distances, from 0 to 2."""
    wanted = {name: key for name, key in SPREAD.items() if name in set(names)}
    if not wanted:
        return {}
    spread = class_spread(vectors, [row.label for row in rows])
    return {name: spread[key] for name, key in wanted.items() if np.isfinite(spread[key])}


def cluster_metrics(vectors: np.ndarray, rows: Sequence[ImageRow], column: str | None, seed: int) -> dict[str, float]:
    """Return NMI and F1 of k-means against a column: the labels, or a metadata column."""
    if column is None:
        return {}
    if column == "label" and rows[0].kind == "several":
        raise UsageError("Clusters can't be compared with labels of which images have several; name another column.")
    values = [row.label if column == "label" else row.metadata.get(column) for row in rows]
    if None in values:
        raise UsageError(
            f"evaluation.clusters: the test rows have no column '{column}'; use label or a metadata column."
        )
    return clustering_metrics(vectors, [str(value) for value in values], seed=seed)
