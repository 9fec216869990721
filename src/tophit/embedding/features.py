"""Features of many rows at once, from the cache as far as it has them, or from a feature file."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tophit.data.feature_files import feature_file_of, features_of_rows
from tophit.data.manifest import ImageRow
from tophit.errors import UsageError
from tophit.files import check_cache
from tophit.models.embedder import Embedder
from tophit.models.feature_cache import FeatureStore, cache_path, content_key, features_by_block
from tophit.models.runtimes import Features, choose_runtime
from tophit.progress import Progress


def cached_features(
    embedder: Embedder,
    rows: Sequence[ImageRow],
    progress: Progress | None = None,
    folder: Path | None = None,
    total: int | None = None,
) -> Features:
    """Return the backbone's pooled features of every row, computing only those the cache does not have.

    ``total`` is the size of the whole set when these rows are a part of it, so that one runtime computes all parts.
    """
    if feature_file_of(rows) is not None:
        return _given_features(embedder, rows)
    check_cache()
    runtime = choose_runtime(embedder, total or len(rows))
    (found,) = features_by_block(runtime, embedder, rows, [range(len(rows))], progress=progress, folder=folder)
    return found


def known_share(embedder: Embedder, rows: Sequence[ImageRow], total: int, folder: Path | None = None) -> float:
    """Return the share of rows whose features are in the cache of the runtime for ``total`` rows."""
    path = cache_path(embedder, choose_runtime(embedder, total), folder)
    if not path.is_file():
        return 0.0
    keys = [content_key(row) for row in rows]
    with closing(FeatureStore(path)) as store:
        known = store.known(key for key in keys if key)
    return sum(key in known for key in keys) / max(1, len(keys))


def _given_features(embedder: Embedder, rows: Sequence[ImageRow]) -> Features:
    """Return the features of rows of a feature file, which need no network."""
    name, values = embedder.architecture["backbone"], features_of_rows(rows)
    if name != f"features/{values.shape[1]}":
        raise UsageError(
            f"{feature_file_of(rows)} holds features of length {values.shape[1]}, which a model with the backbone "
            f"{name} can't use; use a model trained on features of that length."
        )
    return Features(values, list(range(len(rows))), {})
