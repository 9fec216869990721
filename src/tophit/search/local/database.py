"""The SQLite file of a local index: items, the log of vectors, tombstones, and fields to filter by.

Every write of an item gets a new key, greater than all before, never used again. A vector is found by its key.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from tophit.cancelling import check_cancelled, is_cancelled
from tophit.errors import DiskFull, TophitError
from tophit.search.filters import Condition

_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE items (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, metadata TEXT NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE log (key INTEGER PRIMARY KEY, vector BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE tombstones (key INTEGER PRIMARY KEY);
CREATE TABLE fields (field TEXT, kind INTEGER, value, key INTEGER, PRIMARY KEY (field, kind, value, key)) WITHOUT ROWID;
INSERT INTO facts VALUES ('last_key', 0), ('oldest', 0), ('changes', 0);
"""
_CHUNK = 10_000
_STEPS_BETWEEN_LOOKS = 100_000
"""Steps of SQLite's machine, some milliseconds, between looks at whether anybody still waits for a query."""
_KINDS = {bool: 0, int: 1, float: 1, str: 2}
"""Values are compared within a kind only: true is not 1, and 1 is not the text '1'."""


def kind_of(value: Any) -> int | None:
    """Return the kind of a value that filters compare: boolean, number or text; None for others."""
    return _KINDS.get(type(value))


def item_checksum(item_id: str, metadata: str) -> int:
    """Return the checksum of an item's texts."""
    return zlib.crc32(f"{item_id}\0{metadata}".encode())


class WriteFailed(TophitError):
    """A write did not reach the disk; the index is unchanged, unless the error says that this is unknown."""


class NoRoom(WriteFailed, DiskFull):
    """There was no room for a write; the index is unchanged, and the next write may find some."""


class CommitUnknown(WriteFailed):
    """The disk failed while a write was being made durable. ``for_good`` if even reading it again would not tell."""

    for_good = False


class Database:
    """One connection. A reader holds a read transaction: what it sees stays the same until :meth:`renew`."""

    def __init__(self, path: Path, writable: bool) -> None:
        self.path = path
        self.writable = writable
        try:
            self.connection = _connect(path, writable)
            if not writable:
                self.renew()
        except sqlite3.Error as error:
            raise TophitError(f"{path} can't be read: {error}.") from error

    @classmethod
    def create(cls, path: Path) -> "Database":
        """Make the file with its tables, durably."""
        try:
            connection = sqlite3.connect(path, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
            connection.close()
        except sqlite3.Error as error:
            raise WriteFailed(f"{path} can't be written: {error}.") from error
        return cls(path, writable=True)

    def close(self) -> None:
        """Close the connection; the last one to do so folds the write-ahead log into the file."""
        self.connection.close()

    def renew(self) -> None:
        """Let a reader see the latest state."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self.connection.execute("BEGIN")
        self.fact("changes")  # the snapshot is taken by the first read

    def fact(self, name: str) -> int:
        """Return a number kept beside the items: last_key, changes, and oldest,
        the first version of the snapshot that the log still supports.
        """
        return self.connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0]

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Make all changes of a block durable, or none of them."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            yield self.connection
            self.connection.execute("UPDATE facts SET value = value + 1 WHERE name = 'changes'")
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise self._unwritten(error) from error
            raise
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if _is_full(error):  # the mark that ends a write comes last, so it is not there
                raise self._unwritten(error) from error
            unknown = CommitUnknown(
                f"Whether the write to {self.path} is on the disk is unknown ({error}); open the index again to see."
            )
            unknown.for_good = "FSYNC" in getattr(error, "sqlite_errorname", "")
            raise unknown from error

    def _unwritten(self, error: sqlite3.Error) -> WriteFailed:
        kind = NoRoom if _is_full(error) else WriteFailed
        return kind(f"Nothing was written to {self.path}: {error}.")

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def find(self, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return key and metadata (as JSON text) of those ids that are there."""
        found: dict[str, tuple[int, str]] = {}
        query = "SELECT i.id, i.key, i.metadata FROM json_each(?) j CROSS JOIN items i ON i.id = j.value"
        for start in range(0, len(ids), _CHUNK):
            chunk = json.dumps(ids[start : start + _CHUNK])
            found.update((row[0], (row[1], row[2])) for row in self.connection.execute(query, (chunk,)))
        return found

    def insert(self, ids: Sequence[str], vectors: np.ndarray, metadata: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Add items that are not there, inside a transaction; return their keys."""
        if not ids:
            return np.empty(0, np.int64)
        first = self.fact("last_key") + 1
        keys = range(first, first + len(ids))
        texts = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in metadata]
        blobs = [vector.tobytes() for vector in vectors]
        run = self.connection.executemany
        run(
            "INSERT INTO items VALUES (?, ?, ?, ?)",
            zip(keys, ids, texts, map(item_checksum, ids, texts), strict=True),
        )
        run("INSERT INTO log VALUES (?, ?, ?)", zip(keys, blobs, map(zlib.crc32, blobs), strict=True))
        run("INSERT INTO fields VALUES (?, ?, ?, ?)", _field_rows(zip(keys, metadata, strict=True)))
        self.connection.execute("UPDATE facts SET value = ? WHERE name = 'last_key'", (keys[-1],))
        return np.arange(first, first + len(ids))

    def remove(self, items: Sequence[tuple[int, str]], sealed: int) -> None:
        """Remove items, given as key and metadata text, inside a transaction; those in segments leave a tombstone."""
        keys = [(key,) for key, _ in items]
        run = self.connection.executemany
        run("DELETE FROM items WHERE key = ?", keys)
        run("DELETE FROM log WHERE key = ?", keys)
        run("INSERT INTO tombstones VALUES (?)", [(key,) for key, _ in items if key <= sealed])
        rows = _field_rows((key, json.loads(text)) for key, text in items)
        run("DELETE FROM fields WHERE field = ? AND kind = ? AND value = ? AND key = ?", rows)

    def logged(self, after: int) -> Iterator[tuple[int, str, bytes, int]]:
        """Iterate over the log after a key: key, id, vector, checksum, in the order of keys."""
        return self.connection.execute(
            "SELECT l.key, i.id, l.vector, l.checksum FROM log l JOIN items i USING (key) "
            "WHERE l.key > ? ORDER BY l.key",
            (after,),
        )

    def tombstones(self) -> np.ndarray:
        """Return the keys of vectors in segments that are no longer there, ascending."""
        return _keys(self.connection.execute("SELECT key FROM tombstones ORDER BY key"))

    def metadata(self, keys: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return the metadata of items by key."""
        found: dict[int, dict[str, Any]] = {}
        for start in range(0, len(keys), _CHUNK):
            wanted = ",".join(map(str, keys[start : start + _CHUNK]))
            rows = self.connection.execute(f"SELECT key, metadata FROM items WHERE key IN ({wanted})")
            pairs = rows.fetchall()
            texts = json.loads(f"[{','.join(text for _, text in pairs)}]")  # one call is faster than one per row
            found.update(zip((key for key, _ in pairs), texts, strict=True))
        return found

    def in_order(self, after: str, most: int) -> list[tuple[str, int, str]]:
        """Return up to ``most`` items (id, key, metadata text) after an id, in the order of ids."""
        query = "SELECT id, key, metadata FROM items WHERE id > ? ORDER BY id LIMIT ?"
        return self.connection.execute(query, (after, most)).fetchall()


def _is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def _connect(path: Path, writable: bool) -> sqlite3.Connection:
    if not path.is_file():
        raise TophitError(f"{path} is missing: the index is damaged.")
    # The backend lets one thread in at a time.
    mode = "rw" if writable else "ro"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.set_progress_handler(is_cancelled, _STEPS_BETWEEN_LOOKS)
    if writable:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
    return connection


def _field_rows(items: Any) -> Iterator[tuple[str, int, Any, int]]:
    for key, metadata in items:
        for field, value in metadata.items():
            kind = kind_of(value)
            if kind is not None:
                yield field, kind, value, key


def _keys(rows: Iterator[tuple[int]]) -> np.ndarray:
    return np.fromiter((row[0] for row in rows), np.int64)


_SQL = {"eq": "=", "ne": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


@dataclass(frozen=True)
class Selection:
    """The allowed keys, ascending; or, where there are no ``keys``, all but the ``excluded`` ones."""

    keys: np.ndarray | None
    excluded: np.ndarray

    def rows(self, keys: np.ndarray, live: np.ndarray | None) -> np.ndarray:
        """Return the allowed rows, ascending, of a part with these ascending keys."""
        if self.keys is not None:
            rows = rows_of(keys, self.keys)
            return rows if live is None else rows[live[rows]]
        mask = np.ones(len(keys), bool) if live is None else live.copy()
        mask[rows_of(keys, self.excluded)] = False
        return np.flatnonzero(mask)


def select(database: Database, where: Sequence[Condition]) -> Selection:
    """Find the items that meet every condition."""
    nothing = np.empty(0, np.int64)
    included = [_matching(database, one) for one in where if one.operator != "ne"]
    excluded = [_matching(database, one) for one in where if one.operator == "ne"]
    without = reduce(np.union1d, excluded, nothing)
    if not included:
        return Selection(None, without)
    included.sort(key=len)
    return Selection(np.setdiff1d(reduce(np.intersect1d, included), without, assume_unique=True), nothing)


def _matching(database: Database, condition: Condition) -> np.ndarray:
    """Return the keys of the items that meet a condition; of ``ne``, those that do not."""
    check_cancelled()
    if condition.operator == "in":
        return _any_of(database, condition.field, condition.value)
    rows = database.connection.execute(
        f"SELECT key FROM fields WHERE field = ? AND kind = ? AND value {_SQL[condition.operator]} ?",
        (condition.field, kind_of(condition.value), condition.value),
    )
    return np.unique(_keys(rows))


def _any_of(database: Database, field: str, values: Sequence[Any]) -> np.ndarray:
    """Return the keys of the items whose field has any of these values, by one query for each kind of value."""
    by_kind: dict[int | None, list[Any]] = {}
    for value in values:
        by_kind.setdefault(kind_of(value), []).append(value)
    query = "SELECT key FROM fields WHERE field = ? AND kind = ? AND value IN (SELECT value FROM json_each(?))"
    run = database.connection.execute
    found = [_keys(run(query, (field, kind, json.dumps(some)))) for kind, some in by_kind.items()]
    return np.unique(np.concatenate(found))


def rows_of(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where the wanted keys are in ascending keys; those that are not there are left out."""
    places = np.searchsorted(keys, wanted)
    inside = places < len(keys)
    places, wanted = places[inside], wanted[inside]
    return places[keys[places] == wanted]
