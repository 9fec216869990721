"""Cached features: the features of a frozen backbone are computed once per image and kept.

The key is the backbone's weights, pooling and preprocessing, the runtime, the file's content and the box. A renamed
file is found again; a changed file is recomputed. Each finished batch is committed, so an interruption loses little.
"""

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence, Set
from contextlib import closing
from pathlib import Path

import numpy as np

from tophit.data.feature_files import feature_file_of, features_of_rows
from tophit.data.manifest import ImageRow
from tophit.embedding.record_store import lookup
from tophit.errors import UsageError
from tophit.files import cache_folder, check_cache
from tophit.models.embedder import Embedder
from tophit.models.runtimes import Features, Runtime, choose_runtime, features_of
from tophit.progress import Progress

_MANY_FILES = 5000  # from this many, reading files to compute their keys takes a while
_WORTH_READING = 10  # look for kept features if there are at least a tenth as many as rows
_AT_A_TIME = 2048


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
    folder = folder or _folder()
    folder.mkdir(parents=True, exist_ok=True)
    shown = progress(rows, len(rows)) if progress and len(rows) >= _MANY_FILES else rows
    keys = [content_key(row) for row in shown]
    with closing(_Store(folder / _file(embedder, runtime))) as store:
        known = store.read(key for key in keys if key)
        missing = [i for i, key in enumerate(keys) if key not in known]
        bad: dict[int, str] = {}
        for batch in features_of(runtime, embedder, [rows[i] for i in missing], progress=progress):
            bad |= {missing[i]: reason for i, reason in batch.bad.items()}
            fresh = {keys[missing[i]]: value for i, value in zip(batch.rows, batch.values, strict=True)}
            store.write(fresh)
            known.update(fresh)
    good = [i for i in range(len(rows)) if i not in bad]
    shape = (0, embedder.channels)
    values = np.stack([known[keys[i]] for i in good]) if good else np.empty(shape, np.float32)
    return Features(values, good, bad)


def known_share(embedder: Embedder, rows: Sequence[ImageRow], total: int, folder: Path | None = None) -> float:
    """Return the share of rows whose features are in the cache of the runtime for ``total`` rows."""
    path = (folder or _folder()) / _file(embedder, choose_runtime(embedder, total))
    if not path.is_file():
        return 0.0
    keys = [content_key(row) for row in rows]
    with closing(_Store(path)) as store:
        known = store.known(key for key in keys if key)
    return sum(key in known for key in keys) / max(1, len(keys))


class KeptFeatures:
    """Those features of the rows ``wanted`` (numbers) that the cache has from earlier commands. None is computed.

    ``numbers`` are the numbers of the rows that it has. Only a file's content shows whether its row is there, so files
    are read only if the cache has features of this backbone, by this runtime, and enough of them to be worth it.
    """

    def __init__(self, embedder: Embedder, rows: Sequence[ImageRow], wanted: Sequence[int], runtime: Runtime) -> None:
        self._path = _folder() / _file(embedder, runtime)
        self._keys: dict[int, bytes] = {}
        if embedder.trained not in ("nothing", "head") or feature_file_of(rows) is not None or not self._path.is_file():
            return
        with closing(_Store(self._path)) as store:
            if store.count() * _WORTH_READING < len(wanted):
                return
            for start in range(0, len(wanted), _AT_A_TIME):
                keys = {i: content_key(rows[i]) for i in wanted[start : start + _AT_A_TIME]}
                there = store.known(keys.values())
                self._keys |= {i: key for i, key in keys.items() if key in there}

    @property
    def numbers(self) -> Set[int]:
        """The numbers of the rows whose features are kept."""
        return self._keys.keys()

    def read(self, numbers: Sequence[int]) -> dict[int, np.ndarray]:
        """Return the features of kept rows by their numbers."""
        if not numbers:
            return {}
        with closing(_Store(self._path)) as store:
            found = store.read(self._keys[i] for i in numbers)
        return {i: found[self._keys[i]] for i in numbers}


def _folder() -> Path:
    return cache_folder() / "features"


def _file(embedder: Embedder, runtime: Runtime) -> str:
    return f"{embedder.feature_fingerprint()}-{runtime.name}.sqlite"


def _given_features(embedder: Embedder, rows: Sequence[ImageRow]) -> Features:
    """Return the features of rows of a feature file, which need no network."""
    name, values = embedder.architecture["backbone"], features_of_rows(rows)
    if name != f"features/{values.shape[1]}":
        raise UsageError(
            f"{feature_file_of(rows)} holds features of length {values.shape[1]}, which a model with the backbone "
            f"{name} can't use; use a model trained on features of that length."
        )
    return Features(values, list(range(len(rows))), {})


def content_key(row: ImageRow) -> bytes:
    """Return a digest of the file's bytes and the box, or an empty value if there is no such file."""
    try:
        content = row.path.read_bytes()
    except OSError:
        return b""
    return hashlib.sha256(repr(row.box).encode() + content).digest()


class _Store:
    """Maps keys to float32 vectors in one SQLite file, safe against crashes and concurrent writers."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, timeout=60)
        self.connection.execute("CREATE TABLE IF NOT EXISTS feature (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    def read(self, keys: Iterable[bytes]) -> dict[bytes, np.ndarray]:
        """Return the vectors of the keys that are stored."""
        found = lookup(self.connection, "SELECT key, value FROM feature WHERE key IN", keys)
        return {key: np.frombuffer(value, np.float32) for key, value in found.items()}

    def known(self, keys: Iterable[bytes]) -> Set[bytes]:
        """Return those of the keys that are stored."""
        return set(lookup(self.connection, "SELECT key, 1 FROM feature WHERE key IN", keys))

    def count(self) -> int:
        """Return how many vectors are stored."""
        return self.connection.execute("SELECT count(*) FROM feature").fetchone()[0]

    def write(self, vectors: dict[bytes, np.ndarray]) -> None:
        """Store vectors durably."""
        with self.connection:
            pairs = [(key, value.astype(np.float32).tobytes()) for key, value in vectors.items()]
            self.connection.executemany("INSERT OR REPLACE INTO feature VALUES (?, ?)", pairs)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
