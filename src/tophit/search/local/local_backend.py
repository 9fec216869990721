"""The local backend: one writer and any number of readers on a folder, with no server."""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np

from tophit.cancelling import check_cancelled
from tophit.errors import TophitError, UsageError
from tophit.registry import register
from tophit.search.backend import Hit, Item
from tophit.search.filters import Condition
from tophit.search.local.acknowledged import described
from tophit.search.local.budget import LocalOptions, checked_options
from tophit.search.local.database import (
    CommitUnknown,
    Database,
    WriteFailed,
    new_database_name,
)
from tophit.search.local.describing import description
from tophit.search.local.hits import full_hits, plain_hits
from tophit.search.local.keys import rows_of
from tophit.search.local.merging import compact, seal
from tophit.search.local.part_search import Found, Texts, nearest
from tophit.search.local.repairing import repair
from tophit.search.local.segment import checksums
from tophit.search.local.selecting import Selection, select
from tophit.search.local.snapshot import (
    Snapshot,
    WriterLock,
    is_index,
    last_version,
    locked,
    publish,
    read_snapshot,
)
from tophit.search.local.state import State, load, remove_leftovers
from tophit.search.local.verifying import verify

SEAL_AT = 50_000
"""This many vectors in the delta become a segment."""
_QUERIES_AT_ONCE = 1024
_LEAST_AT_ONCE = 32
_SCORES_AT_ONCE = 2**27
"""Scores of one step of an exact search, about a second of work; after each step it can be given up."""
_SELECTIONS = 32


@register(
    "backend",
    "local",
    in_folder=True,
    kind_option="kind",
    kinds=("auto", "flat", "ivf", "pq", "hnsw"),
    tunes_recall=True,
)
class LocalBackend:
    """Vectors, ids and metadata in a folder; see docs/reference/search-index.md."""

    def __init__(self, folder: Path, lock: WriterLock | None, **options: Any) -> None:
        self.folder = folder
        self._writer_lock = lock
        self._lock, self._process = threading.RLock(), os.getpid()
        self._failed = self._trouble = ""
        self._failed_for_good = False
        self._seal_at = SEAL_AT
        self._selections: dict[str, Selection] = {}
        self._reading = _Reading(self)
        if lock is not None:
            remove_leftovers(folder)
        self._open: State | None = load(folder, writable=lock is not None)
        snapshot = self._state.snapshot
        self.dim, self.fingerprint = snapshot.dim, snapshot.fingerprint
        self._options = LocalOptions(**{**snapshot.options, **options})

    @classmethod
    def create(cls, location: str | Path, dim: int, fingerprint: str = "", **options: Any) -> Self:
        """Create an empty index in a folder and open it for writing; the options are those of :class:`LocalOptions`."""
        wanted = checked_options(options)
        folder = Path(location)
        with locked(folder) as lock:
            if is_index(folder):
                raise UsageError(f"{folder} already holds an index; open it, or choose another folder.")
            database = Database.create(folder / new_database_name())
            database.close()
            publish(folder, Snapshot(1, dim, fingerprint, database.path.name, options=asdict(wanted)))
            return cls(folder, lock)

    @classmethod
    def build(
        cls,
        location: str | Path,
        ids: Sequence[str],
        vectors: np.ndarray,
        metadata: Sequence[Mapping[str, Any]],
        fingerprint: str = "",
        **options: Any,
    ) -> Self:
        """Write a whole index, replacing the one in the folder if there is one, and open it for writing."""
        wanted = checked_options(options)
        folder = Path(location)
        with locked(folder) as lock:
            database = Database.create(folder / new_database_name())
            with database.transaction(described("building", ids)):
                database.insert(ids, vectors, metadata)
            database.close()
            version = last_version(folder) + 1
            made = Snapshot(version, vectors.shape[1], fingerprint, database.path.name, options=asdict(wanted))
            publish(folder, made)
            backend = cls(folder, lock)
            backend.compact()
            return backend

    @classmethod
    def open(cls, location: str | Path, writable: bool = False, **options: Any) -> Self:
        """Open the index in a folder, to read a snapshot or as its writer; options apply when it is compacted."""
        checked_options(options)
        folder = Path(location)
        read_snapshot(folder)  # no lock file in a folder without an index
        if not writable:
            return cls(folder, None, **options)
        with locked(folder) as lock:
            return cls(folder, lock, **options)

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, metadata: Sequence[Mapping[str, Any]]) -> None:
        """Add or replace items; on the disk when it returns."""
        with self._writing() as state:
            with state.database.transaction(described("upsert", ids)):
                old = list(state.database.find(ids).values())
                state.database.remove(old, state.snapshot.sealed)
                keys = state.database.insert(ids, vectors, metadata)
            state.kill(_ascending(old))
            state.delta.append(keys, ids, vectors)
            if state.delta.count >= self._seal_at:
                self._seal()

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items; off the disk when it returns."""
        with self._writing() as state:
            with state.database.transaction(described("delete", ids)):
                old = list(state.database.find(ids).values())
                state.database.remove(old, state.snapshot.sealed)
            state.kill(_ascending(old))
            return len(old)

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        """Return the item of each id, in order."""
        with self._reading:
            found = self._state.database.find(ids)
            vectors = self._vectors({key for key, _ in found.values()})
            return [
                Item(one, vectors[found[one][0]], json.loads(found[one][1])) if one in found else None for one in ids
            ]

    def search(
        self, queries: np.ndarray, k: int, where: Sequence[Condition] = (), with_metadata: bool = True
    ) -> list[list[Hit]]:
        """Return up to k items nearest to each query (Q, dim) among those that meet every condition."""
        found = self._nearest_to_one(queries, k, with_metadata) if len(queries) == 1 and not where else None
        if found is None:
            with self._reading as state:
                found = self._nearest(state, queries, k, where, state.database.texts if with_metadata else None)
        return full_hits(found, where) if with_metadata else plain_hits(found)

    def nearest(
        self, queries: np.ndarray, k: int, where: Sequence[Condition] = ()
    ) -> tuple[list[list[str]], list[list[float]]]:
        """Return ids and scores of up to k items nearest to each query, best first."""
        found = self._nearest_to_one(queries, k, with_texts=False) if len(queries) == 1 and not where else None
        if found is None:
            with self._reading as state:
                found = self._nearest(state, queries, k, where, None)
        return found.ids, found.scores

    def _nearest_to_one(self, query: np.ndarray, k: int, with_texts: bool) -> Found | None:
        """Do the same for one query without a filter in few steps: each takes a while beside such a search.

        None unless one tuned segment has all items and their metadata, and the results are enough and do not tie.
        """
        with self._turn():
            check_cancelled()
            segment = self._state.only_segment
            if segment is None or segment.approximate is None:
                return None
            found = segment.approximate.search_one(query, k)
            if found is None:
                return None
            scores, rows = found
            texts = segment.texts_of(rows) if with_texts else []
            return None if texts is None else Found([scores], [segment.few_ids_of(rows)], [texts] if with_texts else [])

    def _nearest(
        self, state: State, queries: np.ndarray, k: int, where: Sequence[Condition], texts: Texts | None
    ) -> Found:
        selection = self._select(where) if where else None
        parts = state.parts()
        if len(queries) <= _LEAST_AT_ONCE:
            return nearest(parts, queries, k, selection, texts)
        found = Found([], [], [])
        items = sum(part.live_count for part in parts)
        at_once = max(_LEAST_AT_ONCE, min(_QUERIES_AT_ONCE, _SCORES_AT_ONCE // max(1, items)))
        for start in range(0, len(queries), at_once):
            found.extend(nearest(parts, queries[start : start + at_once], k, selection, texts))
        return found

    def count(self, where: Sequence[Condition] = ()) -> int:
        """Return how many items meet every condition."""
        with self._reading:
            selection = self._select(where) if where else None
            if selection is not None and selection.keys is not None:
                return len(selection.keys)
            everything = sum(part.live_count for part in self._state.parts())
            return everything if selection is None else everything - len(selection.excluded)

    def items(self, batch: int = 1024) -> Iterator[list[Item]]:
        """Iterate over all items, ordered by id."""
        after = ""
        while True:
            with self._reading:
                rows = self._state.database.in_order(after, batch)
                vectors = self._vectors({key for _, key, _ in rows})
            if not rows:
                return
            yield [Item(item_id, vectors[key], json.loads(text)) for item_id, key, text in rows]
            after = rows[-1][0]

    def compact(self) -> None:
        """Merge everything into one tuned segment; other writes and searches of this process wait."""
        with self._writing() as state, self._replacing():
            compact(self.folder, state, self._options)

    def refresh(self) -> bool:
        """Let a reader see what was written since it was opened; a writer sees its own writes anyway."""
        with self._turn():
            if self._writer_lock is not None:
                return False
            before = self.mark()
            self._reload()
            return self.mark() != before

    def recover(self) -> str:
        """After a failed write, read from the disk whether it is there; return what still forbids writing.

        After a failed fsync reading would tell nothing: the system may show what never reached the disk.
        """
        with self._turn():
            if self._failed and not self._failed_for_good:
                self._reload()
                self._failed = ""
            return self._failed

    def verify(self) -> list[str]:
        """Read everything and return the problems found, one sentence each."""
        with self._turn():
            return verify(self.folder)

    def repair(self) -> list[str]:
        """Keep what matches its checksums as a new version; return what was done and lost, one sentence each."""
        with self._writing(), self._replacing():
            return repair(self.folder, new_database_name())

    @staticmethod
    def repair_folder(location: str | Path) -> list[str]:
        """Repair an index that is too damaged to be opened."""
        with locked(Path(location)) as lock:
            report = repair(Path(location), new_database_name())
            lock.release()
            return report

    def stats(self) -> dict[str, Any]:
        """Return the facts of the index."""
        with self._turn():
            told = description(self._state, self._options, self.folder)
            return {**told, "trouble": self._trouble or self._failed}

    def close(self) -> None:
        """Release the lock and the files."""
        if os.getpid() != self._process:
            return  # they are the parent's
        with self._turn():
            if self._open is not None:
                self._open.database.close()
                self._open = None
            if self._writer_lock is not None:
                self._writer_lock.release()

    def _turn(self) -> threading.RLock:
        """Return the lock that lets one thread in; refuse a child process, which shares files but not memory.

        Its writes would break the parent's database, and the lock may be held for ever by a thread it does not have.
        """
        if os.getpid() != self._process:
            raise UsageError(
                f"The index in {self.folder} was opened in process {self._process}, before process {os.getpid()} was "
                "forked from it: open it again in the child."
            )
        return self._lock

    @property
    def _state(self) -> State:
        if self._open is None:
            raise TophitError(f"The index in {self.folder} is closed.")
        return self._open

    def _select(self, where: Sequence[Condition]) -> Selection:
        """Return what a filter allows; the answer is kept until something is written."""
        name = repr(where)
        if name not in self._selections:
            if len(self._selections) >= _SELECTIONS:
                self._selections.clear()
            self._selections[name] = select(self._state.database, where)
        return self._selections[name]

    def _vectors(self, keys: set[int]) -> dict[int, np.ndarray]:
        """Return copies of the vectors by key."""
        wanted = np.array(sorted(keys), np.int64)
        found: dict[int, np.ndarray] = {}
        for part in self._state.parts():
            rows = rows_of(part.keys, wanted)
            if not len(rows):
                continue
            vectors = np.array(part.vectors[rows])
            part.check(rows, checksums(vectors))
            found.update(zip(part.keys[rows].tolist(), vectors, strict=True))
        if len(found) != len(wanted):
            raise TophitError(f"The index in {self.folder} is damaged: an item has no vector; repair it.")
        return found

    def mark(self) -> tuple[int, int]:
        """Return the snapshot's version and the number of changes: they differ after every write."""
        with self._turn():
            return self._state.snapshot.version, self._state.database.fact("changes")

    def _reload(self) -> None:
        """Open the state on disk again; the old one stays if that fails."""
        old = self._state
        self._selections.clear()
        self._open = load(self.folder, writable=self._writer_lock is not None)
        old.database.close()
        if self._writer_lock is not None:
            remove_leftovers(self.folder)

    def _seal(self) -> None:
        """Turn a large delta into a segment. The delta is already durable, so a failure can wait."""
        try:
            with self._replacing():
                seal(self.folder, self._state)
            self._trouble, self._seal_at = "", SEAL_AT
        except WriteFailed as error:
            self._trouble, self._seal_at = str(error), self._state.delta.count + SEAL_AT

    @contextmanager
    def _replacing(self) -> Iterator[None]:
        """Open the state again after work on the snapshot, whether it succeeded or failed in the middle."""
        try:
            yield
        except BaseException as error:
            self._failed = f"{type(error).__name__}: {error}"  # until the state on disk is known again
            self._reload()
            self._failed = ""
            if isinstance(error, OSError):
                raise WriteFailed(f"A new version can't be written to {self.folder}: {error}.") from error
            if isinstance(error, CommitUnknown):  # it is known again
                raise WriteFailed(f"A new version can't be written to {self.folder}: {error.__cause__}.") from error
            raise
        self._reload()

    @contextmanager
    def _writing(self) -> Iterator[State]:
        """Let one thread write; after a write whose fate is unknown, only once the disk has told it."""
        with self._turn():
            if self._writer_lock is None:
                raise UsageError(f"The index in {self.folder} is open for reading; open it with writable=True.")
            if self.recover():
                raise TophitError(f"A write failed ({self._failed}); open the index in {self.folder} again.")
            self._selections.clear()
            try:
                yield self._state
            except BaseException as error:
                # After a clean failure disk and memory agree; otherwise memory may lack what is on the disk.
                if isinstance(error, CommitUnknown) or not isinstance(error, TophitError):
                    self._failed = str(error) or type(error).__name__
                    self._failed_for_good = isinstance(error, CommitUnknown) and error.for_good
                raise


def _ascending(items: Sequence[tuple[int, str]]) -> np.ndarray:
    return np.sort(np.array([key for key, _ in items], np.int64))


class _Reading:
    """Lets one thread read at a time; turns errors of a damaged database into a sentence.

    A class instead of a generator: that would take as long as some searches.
    """

    def __init__(self, backend: LocalBackend) -> None:
        self._backend = backend

    def __enter__(self) -> State:
        lock = self._backend._turn()
        lock.acquire()
        try:
            check_cancelled()  # perhaps nobody waits any more after the wait for the turn
            return self._backend._state
        except BaseException:
            lock.release()
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._backend._lock.release()
        if error is not None and isinstance(error, sqlite3.Error):
            check_cancelled()
            raise TophitError(f"The index in {self._backend.folder} can't be read: {error}; repair it.") from error
