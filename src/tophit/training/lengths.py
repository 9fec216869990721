"""What shorter vectors cost: the metrics of prefixes of a model's vectors, beside the memory they need."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table

from tophit.data.manifest import ImageRow
from tophit.evaluation import PairedDifference, RetrievalMetrics, paired_difference
from tophit.training.evaluate import metrics_of_vectors, search_arrays
from tophit.training.wanted import check_lengths

_SHOWN = ("recall@1", "MAP@R")
_BYTES = 4  # of a number


@dataclass(frozen=True)
class Length:
    """The metrics of vectors of one length, and their paired differences from whole vectors."""

    dim: int
    metrics: RetrievalMetrics
    differences: dict[str, PairedDifference]

    @property
    def megabytes(self) -> float:
        """Memory of a million vectors."""
        return _BYTES * self.dim

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "dim": self.dim,
            "megabytes_per_million": self.megabytes,
            "metrics": {name: self.metrics[name] for name in _SHOWN},
            "differences": {name: asdict(value) for name, value in self.differences.items()},
        }


def measure_lengths(
    vectors: np.ndarray, rows: Sequence[ImageRow], whole: RetrievalMetrics, dims: Sequence[int]
) -> list[Length]:
    """Return what prefixes of unit vectors (N, d) of rows (N) find, each normalised again, the longest first."""
    check_lengths(dims, vectors.shape[1])
    labels = search_arrays(vectors, rows).arguments["labels"]
    found = []
    for dim in sorted({*dims, vectors.shape[1]}, reverse=True):
        short = vectors[:, :dim] / np.maximum(np.linalg.norm(vectors[:, :dim], axis=1, keepdims=True), 1e-12)
        metrics = metrics_of_vectors(short, rows, 0.95) if dim < vectors.shape[1] else whole
        pairs = {name: (metrics.per_query[name], whole.per_query[name]) for name in _SHOWN if metrics is not whole}
        found.append(Length(dim, metrics, {name: paired_difference(*each, labels) for name, each in pairs.items()}))
    return found


def lengths_table(lengths: Sequence[Length]) -> Table:
    """Return one row per length: metrics in percent, differences from the whole vector, megabytes."""
    table = Table("length", *(f"{name} (change)" for name in _SHOWN), "MB per million", title="Shorter vectors (%)")
    for each in lengths:
        table.add_row(str(each.dim), *(_cell(each, name) for name in _SHOWN), f"{each.megabytes:,.0f}")
    return table


def _cell(length: Length, name: str) -> str:
    value = f"{100 * length.metrics[name]:.2f}"
    change = length.differences.get(name)
    if change is None:
        return value
    return f"{value} ({100 * change.mean:+.2f}, {100 * change.low:+.2f} to {100 * change.high:+.2f})"
