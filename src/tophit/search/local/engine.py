"""The local engine: one writer and any number of readers on a folder, with no server."""

import json
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Self

import numpy as np

from tophit.errors import TophitError, UsageError
from tophit.search.engine import Hit, Item
from tophit.search.filters import Condition
from tophit.search.local import parts
from tophit.search.local.database import CommitUnknown, Database, WriteFailed
from tophit.search.local.lock import WriterLock
from tophit.search.local.manifest import Manifest, is_index, last_version, publish, read_manifest
from tophit.search.local.merging import compact, seal
from tophit.search.local.repairing import repair
from tophit.search.local.segment import Segment
from tophit.search.local.selection import Selection, rows_of, select
from tophit.search.local.state import State, load, remove_leftovers
from tophit.search.local.tuning import Wish
from tophit.search.local.verifying import verify

SEAL_AT = 50_000
"""So many vectors in the delta become a segment."""
_QUERIES_AT_ONCE = 1024
_SELECTIONS = 32


class LocalEngine:
    """Vectors, ids and metadata in a folder; see docs/search.md."""

    def __init__(self, folder: Path, lock: WriterLock | None, **options: Any) -> None:
        self.folder = folder
        self._writer_lock = lock
        self._turn = threading.RLock()
        self._failed = self._trouble = ""
        self._seal_at = SEAL_AT
        self._selections: dict[str, Selection] = {}
        if lock is not None:
            remove_leftovers(folder)
        self._open: State | None = load(folder, writable=lock is not None)
        manifest = self._state.manifest
        self.dim, self.fingerprint = manifest.dim, manifest.fingerprint
        self._wish = Wish(**{**manifest.options, **options})

    @classmethod
    def create(cls, location: str | Path, dim: int, fingerprint: str = "", **options: Any) -> Self:
        """Make an empty index in a folder and open it for writing; the options are those of :class:`Wish`."""
        wish = _wish(options)
        folder = Path(location)
        with _locked(folder) as lock:
            if is_index(folder):
                raise UsageError(f"There is an index in {folder} already; open it, or choose another folder.")
            database = Database.create(folder / _database_name())
            database.close()
            publish(folder, Manifest(1, dim, fingerprint, database.path.name, options=asdict(wish)))
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
        """Write a whole index, put it in force in the place of one that is there, and open it for writing."""
        wish = _wish(options)
        folder = Path(location)
        with _locked(folder) as lock:
            database = Database.create(folder / _database_name())
            with database.transaction():
                database.insert(ids, vectors, metadata)
            database.close()
            version = last_version(folder) + 1
            made = Manifest(version, vectors.shape[1], fingerprint, database.path.name, options=asdict(wish))
            publish(folder, made)
            engine = cls(folder, lock)
            engine.compact()
            return engine

    @classmethod
    def open(cls, location: str | Path, writable: bool = False, **options: Any) -> Self:
        """Open the index in a folder: a snapshot to read, or the one writer; options change what compaction makes."""
        _wish(options)
        folder = Path(location)
        read_manifest(folder)  # no lock file in a folder without an index
        if not writable:
            return cls(folder, None, **options)
        with _locked(folder) as lock:
            return cls(folder, lock, **options)

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, metadata: Sequence[Mapping[str, Any]]) -> None:
        """Add or replace items; on the disk when it returns."""
        with self._writing() as state:
            with state.database.transaction():
                old = list(state.database.find(ids).values())
                state.database.remove(old, state.manifest.sealed)
                keys = state.database.insert(ids, vectors, metadata)
            state.kill(_ascending(old))
            state.delta.append(keys, ids, vectors)
            if state.delta.count >= self._seal_at:
                self._seal()

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items; off the disk when it returns."""
        with self._writing() as state:
            with state.database.transaction():
                old = list(state.database.find(ids).values())
                state.database.remove(old, state.manifest.sealed)
            state.kill(_ascending(old))
            return len(old)

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        """Return the item of each id, in order."""
        with self._reading():
            found = self._state.database.find(ids)
            vectors = self._vectors({key for key, _ in found.values()})
            return [
                Item(one, vectors[found[one][0]], json.loads(found[one][1])) if one in found else None for one in ids
            ]

    def search(
        self, queries: np.ndarray, k: int, where: Sequence[Condition] = (), with_metadata: bool = True
    ) -> list[list[Hit]]:
        """Return up to k items nearest to each query (Q, dim) among those that meet every condition."""
        with self._reading():
            found = self._nearest(queries, k, where, with_keys=with_metadata)
            if not with_metadata:
                return [
                    [Hit(rank, *one, {}) for rank, one in enumerate(zip(scores, ids, strict=True), 1)]
                    for scores, ids in zip(found.scores, found.ids, strict=True)
                ]
            metadata = self._state.database.metadata(list({key for keys in found.keys for key in keys}))
        return [
            [
                Hit(rank, score, one, dict(metadata[key]))
                for rank, (score, one, key) in enumerate(zip(*hits, strict=True), 1)
            ]
            for hits in zip(*found, strict=True)
        ]

    def nearest(
        self, queries: np.ndarray, k: int, where: Sequence[Condition] = ()
    ) -> tuple[list[list[str]], list[list[float]]]:
        """Return ids and scores of up to k items nearest to each query, best first: what is least to be made."""
        with self._reading():
            found = self._nearest(queries, k, where, with_keys=False)
        return found.ids, found.scores

    def _nearest(self, queries: np.ndarray, k: int, where: Sequence[Condition], with_keys: bool) -> parts.Found:
        selection = self._select(where)
        found = parts.Found([], [], [])
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            some = queries[start : start + _QUERIES_AT_ONCE]
            found.extend(parts.nearest(self._state.parts(), some, k, selection, with_keys))
        return found

    def count(self, where: Sequence[Condition] = ()) -> int:
        """Return how many items meet every condition."""
        with self._reading():
            selection = self._select(where)
            if selection is None:
                return sum(part.live_count for part in self._state.parts())
            if selection.keys is not None:
                return len(selection.keys)
            return sum(part.live_count for part in self._state.parts()) - len(selection.excluded)

    def items(self, batch: int = 1024) -> Iterator[list[Item]]:
        """Go through all items in the order of their ids."""
        after = ""
        while True:
            with self._reading():
                rows = self._state.database.in_order(after, batch)
                vectors = self._vectors({key for _, key, _ in rows})
            if not rows:
                return
            yield [Item(item_id, vectors[key], json.loads(text)) for item_id, key, text in rows]
            after = rows[-1][0]

    def compact(self) -> None:
        """Merge everything into one tuned segment; writes and searches of this process wait meanwhile."""
        with self._writing() as state, self._replacing():
            compact(self.folder, state, self._wish)

    def refresh(self) -> bool:
        """Let a reader see what was written since; a writer sees its own writes anyway."""
        with self._turn:
            if self._writer_lock is not None:
                return False
            before = self.mark()
            self._reload()
            return self.mark() != before

    def verify(self) -> list[str]:
        """Read everything and return what is wrong, a sentence each."""
        with self._turn:
            return verify(self.folder)

    def repair(self) -> list[str]:
        """Keep what matches its checksums as a new version; return what was done and lost, a sentence each."""
        with self._writing(), self._replacing():
            return repair(self.folder, _database_name())

    @staticmethod
    def repair_folder(location: str | Path) -> list[str]:
        """Repair an index that is too damaged to be opened."""
        with _locked(Path(location)) as lock:
            report = repair(Path(location), _database_name())
            lock.release()
            return report

    def stats(self) -> dict[str, Any]:
        """Return what there is to know."""
        with self._turn:
            state, wish = self._state, self._wish
            segments = [_describe(segment) for segment in state.segments]
            recalls = [segment["recall@10"] for segment in segments]
            return {
                "engine": "local",
                "count": self.count(),
                "dim": self.dim,
                "version": state.manifest.version,
                "kind": "+".join(sorted({segment["kind"] for segment in segments})) or "flat",
                "recall@10": min(recalls, default=1.0),
                "recall_target": wish.recall,
                "segments": segments,
                "delta": state.delta.live_count,
                "dead": state.delta.dead + sum(segment.dead for segment in state.segments),
                "bytes": sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file()),
                "trouble": self._trouble,
            }

    def close(self) -> None:
        """Give up the lock and the files."""
        with self._turn:
            if self._open is not None:
                self._open.database.close()
                self._open = None
            if self._writer_lock is not None:
                self._writer_lock.release()

    @property
    def _state(self) -> State:
        if self._open is None:
            raise TophitError(f"The index in {self.folder} is closed.")
        return self._open

    @contextmanager
    def _reading(self) -> Iterator[State]:
        """Let one thread in at a time; tell of a damaged database in words."""
        with self._turn:
            try:
                yield self._state
            except sqlite3.Error as error:
                raise TophitError(f"The index in {self.folder} can't be read: {error}; repair it.") from error

    def _select(self, where: Sequence[Condition]) -> Selection | None:
        """Find what a filter allows; a filter used again, with nothing written since, is not looked up again."""
        if not where:
            return None
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
            found.update(zip(part.keys[rows].tolist(), np.array(part.vectors[rows]), strict=True))
        return found

    def mark(self) -> tuple[int, int]:
        """Return what differs after every write: the manifest's version and the number of changes."""
        with self._turn:
            return self._state.manifest.version, self._state.database.fact("changes")

    def _reload(self) -> None:
        """Open the state on disk anew; the old one stays if that fails."""
        old = self._state
        self._selections.clear()
        self._open = load(self.folder, writable=self._writer_lock is not None)
        old.database.close()
        if self._writer_lock is not None:
            remove_leftovers(self.folder)

    def _seal(self) -> None:
        """Make a segment of a great delta. What is in the delta is durable already, so a failure can wait."""
        try:
            with self._replacing():
                seal(self.folder, self._state)
            self._trouble, self._seal_at = "", SEAL_AT
        except WriteFailed as error:
            self._trouble, self._seal_at = str(error), self._state.delta.count + SEAL_AT

    @contextmanager
    def _replacing(self) -> Iterator[None]:
        """Open the state anew after work on the manifest, whether it was done or failed in the middle."""
        try:
            yield
        except BaseException as error:
            self._failed = f"{type(error).__name__}: {error}"  # until the state on disk is known again
            self._reload()
            self._failed = ""
            if isinstance(error, OSError):
                raise WriteFailed(f"A new version can't be written to {self.folder}: {error}.") from error
            raise
        self._reload()

    @contextmanager
    def _writing(self) -> Iterator[State]:
        """Let one thread write; stop writing on after a write of which it is unknown whether it is on the disk."""
        with self._turn:
            if self._writer_lock is None:
                raise UsageError(f"The index in {self.folder} is open to read; open it with writable=True to write.")
            if self._failed:
                raise TophitError(f"A write failed; open the index in {self.folder} again. It was: {self._failed}")
            self._selections.clear()
            try:
                yield self._state
            except BaseException as error:
                # After a clean failure disk and memory agree; otherwise memory may lack what is on the disk.
                if isinstance(error, CommitUnknown) or not isinstance(error, TophitError):
                    self._failed = str(error) or type(error).__name__
                raise


def _wish(options: Mapping[str, Any]) -> Wish:
    known = [field.name for field in fields(Wish)]
    for name in options:
        if name not in known:
            raise UsageError(f"The local engine has no option '{name}'; choices: {', '.join(known)}.")
    return Wish(**options)


def _describe(segment: Segment) -> dict[str, Any]:
    """Return a segment's size, kind and the recall measured when it was made."""
    facts = segment.facts
    if facts.kind == "flat":
        return {"count": facts.count, "kind": "flat", "recall@10": 1.0}
    measured = {f"recall@{k}": facts.tuning[k]["recall"] for k in ("10", "100")}
    effort = {f"effort@{k}": facts.tuning[k]["effort"] for k in ("10", "100")}
    return {"count": facts.count, "kind": facts.kind, **measured, **effort, "sample": facts.tuning["sample"]}


def _ascending(items: Sequence[tuple[int, str]]) -> np.ndarray:
    return np.sort(np.array([key for key, _ in items], np.int64))


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
