"""The local engine: one writer and any number of readers on a folder, with no server."""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from tophit.errors import TophitError, UsageError
from tophit.search.engine import Hit, Item
from tophit.search.filters import Condition
from tophit.search.local import parts
from tophit.search.local.database import CommitUnknown, Database
from tophit.search.local.delta import Delta
from tophit.search.local.lock import WriterLock
from tophit.search.local.manifest import Manifest, is_index, last_version, publish, read_manifest
from tophit.search.local.selection import Selection, rows_of, select

_QUERIES_AT_ONCE = 1024


class LocalEngine:
    """Vectors, ids and metadata in a folder; see docs/search.md."""

    def __init__(self, folder: Path, lock: WriterLock | None) -> None:
        self.folder = folder
        self._writer_lock = lock
        self._turn = threading.RLock()
        self._failed = ""
        self._load()

    @classmethod
    def create(cls, location: str | Path, dim: int, fingerprint: str = "") -> Self:
        """Make an empty index in a folder and open it for writing."""
        folder = Path(location)
        with _locked(folder) as lock:
            if is_index(folder):
                raise UsageError(f"There is an index in {folder} already; open it, or choose another folder.")
            database = Database.create(folder / _database_name())
            database.close()
            publish(folder, Manifest(1, dim, fingerprint, database.path.name))
            return cls(folder, lock)

    @classmethod
    def build(
        cls,
        location: str | Path,
        ids: Sequence[str],
        vectors: np.ndarray,
        metadata: Sequence[Mapping[str, Any]],
        fingerprint: str = "",
    ) -> Self:
        """Write a whole index, put it in force in the place of one that is there, and open it for writing."""
        folder = Path(location)
        with _locked(folder) as lock:
            database = Database.create(folder / _database_name())
            with database.transaction():
                database.insert(ids, vectors, metadata)
            database.close()
            version = last_version(folder) + 1
            publish(folder, Manifest(version, vectors.shape[1], fingerprint, database.path.name))
            return cls(folder, lock)

    @classmethod
    def open(cls, location: str | Path, writable: bool = False) -> Self:
        """Open the index in a folder: a snapshot to read, or the one writer."""
        folder = Path(location)
        read_manifest(folder)  # no lock file in a folder without an index
        if not writable:
            return cls(folder, None)
        with _locked(folder) as lock:
            return cls(folder, lock)

    def _load(self) -> None:
        """Read the state on disk."""
        self.manifest = read_manifest(self.folder)
        self.dim, self.fingerprint = self.manifest.dim, self.manifest.fingerprint
        self.database = Database(self.folder / self.manifest.database, self._writer_lock is not None)
        self.delta = Delta.read(self.dim, self.database.logged(self.manifest.sealed))

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, metadata: Sequence[Mapping[str, Any]]) -> None:
        """Add or replace items; on the disk when it returns."""
        with self._turn:
            self._check_writable()
            with self._guarded(), self.database.transaction():
                old = list(self.database.find(ids).values())
                self.database.remove(old, self.manifest.sealed)
                keys = self.database.insert(ids, vectors, metadata)
            self._forget([key for key, _ in old])
            self.delta.append(keys, ids, vectors)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items; off the disk when it returns."""
        with self._turn:
            self._check_writable()
            with self._guarded(), self.database.transaction():
                old = list(self.database.find(ids).values())
                self.database.remove(old, self.manifest.sealed)
            self._forget([key for key, _ in old])
            return len(old)

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        """Return the item of each id, in order."""
        with self._turn:
            found = self.database.find(ids)
            vectors = self._vectors({key for key, _ in found.values()})
            return [
                Item(one, vectors[found[one][0]], json.loads(found[one][1])) if one in found else None for one in ids
            ]

    def search(
        self, queries: np.ndarray, k: int, where: Sequence[Condition] = (), with_metadata: bool = True
    ) -> list[list[Hit]]:
        """Return up to k items nearest to each query (Q, dim) among those that meet every condition."""
        with self._turn:
            selection = self._select(where)
            found: list[parts.Found] = []
            for start in range(0, len(queries), _QUERIES_AT_ONCE):
                found += parts.nearest(self._parts(), queries[start : start + _QUERIES_AT_ONCE], k, selection)
            if not with_metadata:
                return [[Hit(rank, one[0], one[1], {}) for rank, one in enumerate(hits, 1)] for hits in found]
            metadata = self.database.metadata(list({one[2] for hits in found for one in hits}))
        return [
            [Hit(rank, one[0], one[1], dict(metadata[one[2]])) for rank, one in enumerate(hits, 1)] for hits in found
        ]

    def count(self, where: Sequence[Condition] = ()) -> int:
        """Return how many items meet every condition."""
        with self._turn:
            selection = self._select(where)
            if selection is None:
                return sum(part.live_count for part in self._parts())
            if selection.keys is not None:
                return len(selection.keys)
            return sum(part.live_count for part in self._parts()) - len(selection.excluded)

    def items(self, batch: int = 1024) -> Iterator[list[Item]]:
        """Go through all items in the order of their ids."""
        after = ""
        while True:
            with self._turn:
                rows = self.database.in_order(after, batch)
                vectors = self._vectors({key for _, key, _ in rows})
            if not rows:
                return
            yield [Item(item_id, vectors[key], json.loads(text)) for item_id, key, text in rows]
            after = rows[-1][0]

    def compact(self) -> None:
        """Merge what was written since the last time."""
        with self._turn:
            self._check_writable()

    def refresh(self) -> bool:
        """Let a reader see what was written since; a writer sees its own writes anyway."""
        with self._turn:
            if self._writer_lock is not None:
                return False
            before = self.manifest.version, self.database.fact("changes")
            self.database.close()
            self._load()
            return (self.manifest.version, self.database.fact("changes")) != before

    def verify(self) -> list[str]:
        """Read everything and return what is wrong, a sentence each."""
        with self._turn:
            return [text for (text,) in self.database.connection.execute("PRAGMA integrity_check") if text != "ok"]

    def stats(self) -> dict[str, Any]:
        """Return what there is to know."""
        with self._turn:
            return {
                "engine": "local",
                "count": self.count(),
                "dim": self.dim,
                "version": self.manifest.version,
                "bytes": sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file()),
            }

    def close(self) -> None:
        """Give up the lock and the files."""
        with self._turn:
            self.database.close()
            if self._writer_lock is not None:
                self._writer_lock.release()

    def _parts(self) -> list[parts.Part]:
        return [self.delta]

    def _select(self, where: Sequence[Condition]) -> Selection | None:
        return select(self.database, where) if where else None

    def _forget(self, keys: Sequence[int]) -> None:
        self.delta.kill(np.sort(np.array(keys, np.int64)))

    def _vectors(self, keys: set[int]) -> dict[int, np.ndarray]:
        """Return copies of the vectors by key."""
        wanted = np.array(sorted(keys), np.int64)
        found: dict[int, np.ndarray] = {}
        for part in self._parts():
            rows = rows_of(part.keys, wanted)
            found.update(zip(part.keys[rows].tolist(), np.array(part.vectors[rows]), strict=True))
        return found

    def _check_writable(self) -> None:
        if self._writer_lock is None:
            raise UsageError(f"The index in {self.folder} is open to read; open it with writable=True to write.")
        if self._failed:
            raise TophitError(f"An earlier write failed; open the index in {self.folder} again. It was: {self._failed}")

    def _guarded(self) -> "_Guard":
        return _Guard(self)


def _database_name() -> str:
    return f"items-{uuid.uuid4().hex[:12]}.sqlite"


@contextmanager
def _locked(folder: Path) -> Iterator[WriterLock]:
    """Take the writer's lock in a folder, made where it is missing; release it only if something fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TophitError(f"{folder} can't be made: {error.strerror}.") from error
    lock = WriterLock(folder)
    try:
        yield lock
    except BaseException:
        lock.release()
        raise


class _Guard:
    """Stops an engine from writing on after a write of which it is unknown whether it is on the disk."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, CommitUnknown):
            self.engine._failed = str(error)
