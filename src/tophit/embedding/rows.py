"""From rows of a manifest to vectors, for every kind of embedder: cached features, exported graph or plain torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tophit.data.feature_files import feature_file_of
from tophit.data.manifest import ImageRow
from tophit.embedding.features import cached_features
from tophit.models.embedder import Embedder
from tophit.models.runtimes import TorchRuntime, features_of
from tophit.progress import Progress


@dataclass(frozen=True)
class EmbeddedRows:
    """Unit vectors (n, dim) of the readable rows, their row numbers, and the reasons for the unreadable ones."""

    vectors: np.ndarray
    rows: list[int]
    bad: dict[int, str]


def embed_rows(
    embedder: Embedder,
    rows: Sequence[ImageRow],
    progress: Progress | None = None,
    final: bool = True,
    total: int | None = None,
) -> EmbeddedRows:
    """Embed rows in order, with features from the cache as far as it has them.

    ``final=False`` means that the weights will change again, so nobody would ask for their features a second time, and
    exporting them for a faster runtime is not worth it either. ``total`` is the size of the whole set when these rows
    are a part of it, so that one runtime computes all parts.
    """
    if final or embedder.trained in ("nothing", "head") or feature_file_of(rows) is not None:
        features = cached_features(embedder, rows, progress, total=total)
        return EmbeddedRows(embedder.embed_arrays(features.values), features.rows, features.bad)
    vectors: list[np.ndarray] = [np.empty((0, embedder.dim), np.float32)]
    good: list[int] = []
    bad: dict[int, str] = {}
    for batch in features_of(TorchRuntime(embedder), embedder, rows, progress=progress):
        bad |= batch.bad
        good += batch.rows
        vectors.append(embedder.embed_arrays(batch.values))
    return EmbeddedRows(np.concatenate(vectors), good, bad)
