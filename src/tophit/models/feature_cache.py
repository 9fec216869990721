"""The cache of features: those of a backbone are computed once for a picture, whoever asks for them first.

``encode``, ``embed``, ``index``, evaluation and the training of a head share it. The key is the backbone's weights,
pooling and preprocessing, the runtime, the file's content and the box. A renamed file is found again; a changed file is
recomputed. What was computed is written every two seconds, so a killed process loses little. Each backbone and runtime
has a file; those that were used least recently go when all of them are larger than ``TOPHIT_FEATURES_GB``.
"""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tophit.data.dataset import PictureSource
from tophit.errors import UsageError
from tophit.files import cache_folder
from tophit.models.runtimes import BATCH, Features, Runtime, features_of
from tophit.progress import Progress

if TYPE_CHECKING:
    from tophit.models.embedder import Embedder

_MANY_FILES = 5000  # from this many, reading files to compute their keys takes a while
_WORTH_READING = 10  # look for kept features if there are at least a tenth as many as pictures
_WRITE_EVERY = 2.0  # seconds; what is not written is lost when the process is killed
_ASKED_AT_ONCE = 500  # keys in one question to SQLite
_MOST_GB = 20.0


def features_by_block(
    runtime: Runtime,
    embedder: "Embedder",
    sources: Sequence[PictureSource],
    blocks: Sequence[Sequence[int]],
    batch: int = BATCH,
    workers: int = 0,
    progress: Progress | None = None,
    folder: Path | None = None,
) -> Iterator[Features]:
    """Yield the pooled features of blocks of pictures, given by ascending numbers.

    Those that the cache has are read; the others are computed and kept.
    """
    cache = FeatureCache(embedder, runtime, sources, folder)
    known = cache.find([row for block in blocks for row in block], progress)
    missing = [[row for row in block if row not in known] for block in blocks]
    batches = [some[i : i + batch] for some in missing for i in range(0, len(some), batch)]
    computed = features_of(runtime, embedder, sources, batches, workers, progress)
    try:
        for block, some in zip(blocks, missing, strict=True):
            found, bad = cache.read([row for row in block if row in known]), dict[int, str]()
            for _ in range(0, len(some), batch):
                one = next(computed)
                fresh = dict(zip(one.rows, one.values, strict=True))
                cache.keep(fresh)
                found |= fresh
                bad |= one.bad
            good = sorted(found)
            values = np.stack([found[row] for row in good]) if good else np.empty((0, embedder.channels))
            yield Features(values.astype(np.float32, copy=False), good, bad)
        next(computed, None)  # lets the progress bar finish
    finally:
        cache.write()


class FeatureCache:
    """What the cache has of some pictures, for a backbone and a runtime."""

    def __init__(
        self, embedder: "Embedder", runtime: Runtime, sources: Sequence[PictureSource], folder: Path | None = None
    ) -> None:
        self._sources = sources
        self._path = cache_path(embedder, runtime, folder)
        self._most_bytes = _limit()
        self._is_full = False
        self._keys: dict[int, bytes] = {}
        self._waiting: dict[bytes, np.ndarray] = {}
        self._written = time.monotonic()

    def find(self, wanted: Sequence[int], progress: Progress | None = None) -> Set[int]:
        """Return those of the pictures ``wanted`` (numbers) whose features are kept.

        Only a file's content shows whether it is there, so files are read only if the cache has enough features of this
        backbone, by this runtime, to be worth it.
        """
        if not self._path.is_file():
            return set()
        with suppress(OSError):
            os.utime(self._path)  # used now
        with closing(FeatureStore(self._path)) as store:
            if store.count() * _WORTH_READING < len(wanted):
                return set()
            shown = progress(wanted, len(wanted)) if progress and len(wanted) >= _MANY_FILES else wanted
            self._keys = {row: content_key(self._sources[row]) for row in shown}
            there = store.known(key for key in self._keys.values() if key)
        return {row for row, key in self._keys.items() if key in there}

    def read(self, kept: Sequence[int]) -> dict[int, np.ndarray]:
        """Return the features of pictures that ``find`` has found, by number."""
        if not kept:
            return {}
        with closing(FeatureStore(self._path)) as store:
            found = store.read(self._keys[row] for row in kept)
        return {row: found[self._keys[row]] for row in kept}

    def keep(self, computed: Mapping[int, np.ndarray]) -> None:
        """Keep the features of pictures that are files; they are written by and by, the last of them by ``write``."""
        if self._is_full:
            return
        keys = {row: self._keys.get(row) or content_key(self._sources[row]) for row in computed}
        self._waiting |= {key: computed[row] for row, key in keys.items() if key}
        if time.monotonic() - self._written >= _WRITE_EVERY:
            self.write()

    def write(self) -> None:
        """Write what waits; what can't be written is computed again the next time."""
        if self._waiting:
            with suppress(OSError, sqlite3.Error):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with closing(FeatureStore(self._path)) as store:
                    store.write(self._waiting)
                self._make_room()
        self._waiting, self._written = {}, time.monotonic()

    def _make_room(self) -> None:
        """Remove the files of other models that were used least recently, until all files fit the limit."""
        found = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in self._path.parent.glob("*.sqlite"))
        total = sum(size for _, size, _ in found)
        for _, size, path in found:
            if total > self._most_bytes and path != self._path:
                path.unlink(missing_ok=True)
                total -= size
        self._is_full = total > self._most_bytes


def _limit() -> float:
    """Return how many bytes the cache may have."""
    given = os.environ.get("TOPHIT_FEATURES_GB", str(_MOST_GB))
    try:
        return float(given) * 1e9
    except ValueError:
        raise UsageError(f"TOPHIT_FEATURES_GB is a number of gigabytes, such as {_MOST_GB:g}, not '{given}'.") from None


def cache_path(embedder: "Embedder", runtime: Runtime, folder: Path | None = None) -> Path:
    """Return the file that holds the features of a backbone by a runtime."""
    return (folder or cache_folder() / "features") / f"{embedder.feature_fingerprint()}-{runtime.name}.sqlite"


def content_key(source: PictureSource) -> bytes:
    """Return a digest of the file's bytes and the box, or an empty value if there is no such file."""
    if not isinstance(source.path, str | Path):
        return b""
    try:
        content = Path(source.path).read_bytes()
    except OSError:
        return b""
    return hashlib.sha256(repr(source.box).encode() + content).digest()


class FeatureStore:
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

    def write(self, vectors: Mapping[bytes, np.ndarray]) -> None:
        """Store vectors durably."""
        with self.connection:
            pairs = [(key, value.astype(np.float32).tobytes()) for key, value in vectors.items()]
            self.connection.executemany("INSERT OR REPLACE INTO feature VALUES (?, ?)", pairs)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def lookup(connection: sqlite3.Connection, question: str, keys: Iterable[bytes]) -> dict[bytes, Any]:
    """Return key and value of the rows that ``SELECT key, value FROM ... WHERE key IN`` finds for many keys."""
    wanted = list(set(keys))
    found: dict[bytes, Any] = {}
    for start in range(0, len(wanted), _ASKED_AT_ONCE):
        some = wanted[start : start + _ASKED_AT_ONCE]
        found |= dict(connection.execute(f"{question} ({','.join('?' * len(some))})", some))
    return found
