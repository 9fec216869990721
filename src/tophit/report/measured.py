"""A model measured on the test rows, with all that a report looks at again: rows, vectors, who searched whom."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tophit.data.manifest import ImageRow, Manifest
from tophit.evaluation import RetrievalMetrics
from tophit.evaluation.retrieval import search_task
from tophit.evaluation.similarity import SearchTask
from tophit.models.embedder import Embedder
from tophit.progress import View
from tophit.training.evaluate import metrics_of_vectors, search_arrays
from tophit.training.full_evaluation import embed_by_both


@dataclass(frozen=True)
class Evaluated:
    """A model's vectors (N, d) of the rows that could be read, and its metrics with intervals and per query.

    ``query`` (Q,) and ``gallery`` (M,) are the numbers of the rows that search and that are searched; the same where
    every image queries all others. Values per query stand in the order of ``query``.
    """

    name: str
    rows: list[ImageRow]
    vectors: np.ndarray
    labels: list[str]
    query: np.ndarray
    gallery: np.ndarray
    metrics: RetrievalMetrics

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by which every function of ``tophit.evaluation`` sees this search."""
        return search_arrays(self.vectors, self.rows).arguments

    def task(self) -> SearchTask:
        """Return who searches whom, with classes as numbers."""
        return search_task(**self.arguments)

    @property
    def query_labels(self) -> np.ndarray:
        """The label of every query (Q,)."""
        return np.asarray(self.labels)[self.query]


def evaluated(name: str, rows: list[ImageRow], vectors: np.ndarray, metrics: tuple[str, ...] = ()) -> Evaluated:
    """Measure vectors (N, d) of rows (N) as ``tophit evaluate`` does; ``metrics`` join the usual ones."""
    search = search_arrays(vectors, rows)
    measured = metrics_of_vectors(vectors, rows, 0.95, metrics)
    return Evaluated(name, rows, vectors, [row.label for row in rows], search.query, search.gallery, measured)


def evaluate_models(
    names: tuple[str, str | None],
    embedders: tuple[Embedder, Embedder | None],
    part: Manifest,
    metrics: tuple[str, ...] = (),
    view: View | None = None,
) -> tuple[Evaluated, Evaluated | None]:
    """Measure a model, and another on the same rows if there is one; an image that either can't read is left out."""
    rows, vectors, second = embed_by_both(embedders[0], part, embedders[1], view)
    first = evaluated(names[0], rows, vectors, metrics)
    return first, None if second is None or names[1] is None else evaluated(names[1], rows, second, metrics)
