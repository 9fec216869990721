"""What a finished run measures besides the usual metrics: named test sets, clusters, and its paper's numbers."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.errors import UsageError
from tophit.evaluation import clustering_metrics
from tophit.evaluation.protocols import vehicle_id_metrics
from tophit.recipe import Recipe

_COLUMN = "test_sets"  # manifest column: the names, separated by blanks, of the test sets an image belongs to
_DRAWS = 10


def wanted_metrics(recipe: Recipe) -> list[str]:
    """Return the retrieval metrics that the recipe and its paper name."""
    named = [name for name in recipe.paper.metrics if "/" not in name and name not in ("NMI", "F1")]
    return list(dict.fromkeys([recipe.evaluation.metric, *named]))


def drawn_gallery_metrics(vectors: np.ndarray, rows: Sequence[ImageRow], seed: int = 0) -> dict[str, dict[str, float]]:
    """Return the metrics of each test set named in the manifest's column ``test_sets``; none without that column.

    Follows VehicleID's protocol: one random image of every class is the gallery, the others are queries; the mean of
    ten draws. ``vectors`` (N, d) belong to ``rows`` (N).
    """
    members: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        for name in str(row.metadata.get(_COLUMN) or "").split():
            members.setdefault(name, []).append(number)
    found = {}
    for name, numbers in members.items():
        labels = [rows[number].label for number in numbers]
        if len(set(labels)) < len(labels):
            measured = vehicle_id_metrics(
                vectors[numbers], labels, {name: sorted(set(labels))}, _DRAWS, seed, recall_at=(1, 5, 10)
            )
            found[name] = measured[name]
    return found


def cluster_metrics(vectors: np.ndarray, rows: Sequence[ImageRow], column: str | None, seed: int) -> dict[str, float]:
    """Return NMI and F1 of k-means against a column: the labels, or a metadata column."""
    if column is None:
        return {}
    values = [row.label if column == "label" else row.metadata.get(column) for row in rows]
    if None in values:
        raise UsageError(
            f"evaluation.clusters: the test rows have no column '{column}'; use label or a metadata column."
        )
    return clustering_metrics(vectors, [str(value) for value in values], seed=seed)


def beside_paper(recipe: Recipe, result: dict[str, Any]) -> dict[str, Any]:
    """Return the paper's metrics, in percent, each with the run's own; nothing if the recipe has none."""
    paper = recipe.paper
    if not paper.metrics:
        return {}
    of_sets = {f"{part}/{name}": v for part, values in result["test_sets"].items() for name, v in values.items()}
    ours = {**result["test"], **of_sets}
    metrics = {
        name: {"paper": value, "ours": 100 * ours[name] if name in ours else None}
        for name, value in paper.metrics.items()
    }
    return {"paper": {"title": paper.title, "table": paper.table, "row": paper.row, "metrics": metrics}}
