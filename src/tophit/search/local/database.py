"""The SQLite file of a local index: items, the log of vectors, tombstones, and fields to filter by.

Every write of an item gets a new key, greater than all before, never used again. A vector is found by its key.
"""

import hashlib
import json
import sqlite3
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tophit.cancelling import is_cancelled
from tophit.errors import DiskFull, TophitError
from tophit.search.local.acknowledged import Acknowledged, AcknowledgedList, ReadList, missing_writes, now, read_list
from tophit.search.local.fields import field_rows
from tophit.search.local.keys import all_keys
from tophit.search.local.snapshot import file_facts

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
_FACTS = {"last_key", "oldest", "changes"}
_CHUNK = 10_000
_STEPS_BETWEEN_LOOKS = 100_000
"""Steps of SQLite's machine, some milliseconds, between looks at whether anybody still waits for a query."""


def item_checksum(item_id: str, metadata: str) -> int:
    """Return the checksum of an item's texts."""
    return zlib.crc32(f"{item_id}\0{metadata}".encode())


def _facts_checksum(facts: Mapping[str, int]) -> int:
    return zlib.crc32(repr(sorted((name, value) for name, value in facts.items() if name != "check")).encode())


def _check_item(item_id: str, metadata: str, checksum: int) -> None:
    """Raise if an item that was read does not have the checksum it was written with."""
    if item_checksum(item_id, metadata) != checksum:
        raise TophitError(f"The index is damaged: the item '{item_id}' does not match its checksum; repair it.")


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
        self._written: Acknowledged | None = None
        self._list: AcknowledgedList | None = None
        self._facts: dict[str, int] = {}
        self._content = hashlib.sha256()
        known = read_list(path)  # before the database: a writer commits first, then adds to the list
        try:
            self.connection = _connect(path, writable)
            if not writable:
                self.renew()
        except sqlite3.Error as error:
            raise TophitError(f"{path} can't be read: {error}.") from error
        try:
            self._check(known)
            if writable:
                self._take_up(known)
        except BaseException:
            self.connection.close()
            raise

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
        """Close the connection; the last one to do so folds the write-ahead log into the file.

        After that the list of acknowledged writes gets a digest of the whole file.
        """
        self.connection.close()
        if self._list is None:
            return
        with suppress(OSError):  # every write is safe already; only a way to check the file is missing
            if self._written and not has_log(self.path):
                digest = file_facts(self.path).sha256
                self._list.add(replace(self._written, what="closing", at=now(), file=digest))
        self._list.close()
        self._list = None

    def renew(self) -> None:
        """Let a reader see the latest state."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self.connection.execute("BEGIN")
        self.facts()  # the snapshot is taken by the first read

    def fact(self, name: str) -> int:
        """Return a number kept beside the items: last_key, changes, and oldest,
        the first version of the snapshot that the log still supports.
        """
        return self.connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0]

    def facts(self) -> dict[str, int]:
        """Return all such numbers; ``chain`` is a digest over all writes, ``check`` the checksum of the others.

        Databases of older versions have neither of these two.
        """
        return dict(self.connection.execute("SELECT name, value FROM facts"))

    @contextmanager
    def transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        """Make all changes of a block durable, or none of them; ``what`` they are goes to the acknowledged writes."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            self._facts, self._content = self.facts(), hashlib.sha256()
            yield self.connection
            self._write_facts()
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.Error):
                raise self._unwritten(error) from error
            raise
        try:
            self.connection.execute("COMMIT")
            done = Acknowledged(self._facts["changes"], self._facts["chain"], what, now())
            if self._list is not None:
                self._list.add(done)
            self._written = done
        except (sqlite3.Error, OSError) as error:
            self._roll_back()
            if _is_full(error):  # the mark that ends a write comes last, so it is not there
                raise self._unwritten(error) from error
            unknown = CommitUnknown(
                f"Whether the write to {self.path} is on the disk is unknown ({error}); open the index again to see."
            )
            unknown.for_good = "FSYNC" in getattr(error, "sqlite_errorname", "")
            raise unknown from error

    def _unwritten(self, error: Exception) -> WriteFailed:
        kind = NoRoom if _is_full(error) else WriteFailed
        return kind(f"Nothing was written to {self.path}: {error}.")

    def _write_facts(self) -> None:
        """Count the write and chain its content to those before."""
        facts = self._facts
        facts["changes"] += 1
        before = facts.get("chain", 0).to_bytes(8, "big") + self._content.digest()
        facts["chain"] = int.from_bytes(hashlib.sha256(before).digest()[:8], "big") >> 1  # SQLite's numbers have a sign
        facts["check"] = _facts_checksum(facts)
        self.connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def _check(self, known: ReadList | None) -> None:
        """Raise if the facts are damaged, or an acknowledged write is missing."""
        where = f"The index in {self.path.parent} is damaged"
        try:
            facts = self._facts = self.facts()
        except sqlite3.Error as error:
            raise TophitError(f"{where}: {self.path.name}: {error}.") from error
        older = "chain" not in facts and (known is None or known.last.chain == 0)
        if (not older and facts.get("check") != _facts_checksum(facts)) or not facts.keys() >= _FACTS:
            raise TophitError(f"{where}: {self.path.name}: its numbers do not match their checksum; repair it.")
        if older:
            return
        if known is None:
            if read_list(self.path) is None:  # a writer may just have made it
                raise TophitError(f"{where}: the list of acknowledged writes is missing; repair it.")
            return
        if known.last.number > facts["changes"]:
            raise TophitError(
                f"{where}: {missing_writes(known, facts['changes'])}. Restore a backup, or repair the index to go on "
                "without them and write them again."
            )
        if known.last.number == facts["changes"] and known.last.chain != facts["chain"]:
            raise TophitError(f"{where}: it does not hold what was acknowledged ({known.last}); repair it.")

    def _take_up(self, known: ReadList | None) -> None:
        """Open the list of acknowledged writes; begin one for a database of an older version or a new one."""
        facts = self._facts
        here = Acknowledged(facts["changes"], facts.get("chain", 0), "opening", now())
        try:
            if "chain" not in facts:
                self._list = AcknowledgedList.create(self.path, here)  # first: a chain without a list is damage
                with self.transaction("the first of the acknowledged writes"):
                    pass
                return
            assert known is not None
            self._list = AcknowledgedList(self.path)
            self._written = None if known.last.file else here
            if known.whole != known.size:
                self._list.cut(known.whole)
            if facts["changes"] > known.last.number:
                with suppress(OSError):  # on a full disk the next write will say so
                    self._list.add(here)
        except OSError as error:
            raise WriteFailed(f"{self.path.parent} can't be written: {error.strerror or error}.") from error

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def find(self, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return key and metadata (as JSON text) of those ids that are there."""
        found: dict[str, tuple[int, str]] = {}
        query = "SELECT i.id, i.key, i.metadata, i.checksum FROM json_each(?) j CROSS JOIN items i ON i.id = j.value"
        for start in range(0, len(ids), _CHUNK):
            chunk = json.dumps(ids[start : start + _CHUNK])
            for item_id, key, metadata, checksum in self.connection.execute(query, (chunk,)):
                _check_item(item_id, metadata, checksum)
                found[item_id] = (key, metadata)
        return found

    def insert(self, ids: Sequence[str], vectors: np.ndarray, metadata: Sequence[Mapping[str, Any]]) -> np.ndarray:
        """Add items that are not there, inside a transaction; return their keys."""
        if not ids:
            return np.empty(0, np.int64)
        first = self._facts["last_key"] + 1
        keys = range(first, first + len(ids))
        texts = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in metadata]
        blobs = [vector.tobytes() for vector in vectors]
        sums, blob_sums = list(map(item_checksum, ids, texts)), list(map(zlib.crc32, blobs))
        run = self.connection.executemany
        run("INSERT INTO items VALUES (?, ?, ?, ?)", zip(keys, ids, texts, sums, strict=True))
        run("INSERT INTO log VALUES (?, ?, ?)", zip(keys, blobs, blob_sums, strict=True))
        run("INSERT INTO fields VALUES (?, ?, ?, ?)", field_rows(zip(keys, metadata, strict=True)))
        self._content.update(np.array([keys, sums, blob_sums], np.int64).tobytes())
        self._facts["last_key"] = keys[-1]
        return np.arange(first, first + len(ids))

    def remove(self, items: Sequence[tuple[int, str]], sealed: int) -> None:
        """Remove items, given as key and metadata text, inside a transaction; those in segments leave a tombstone."""
        keys = [(key,) for key, _ in items]
        run = self.connection.executemany
        run("DELETE FROM items WHERE key = ?", keys)
        run("DELETE FROM log WHERE key = ?", keys)
        run("INSERT INTO tombstones VALUES (?)", [(key,) for key, _ in items if key <= sealed])
        rows = field_rows((key, json.loads(text)) for key, text in items)
        run("DELETE FROM fields WHERE field = ? AND kind = ? AND value = ? AND key = ?", rows)
        self._content.update(np.array(keys, np.int64).tobytes())

    def forget(self, sealed: int, tombstones: np.ndarray, oldest: int) -> None:
        """Remove logged vectors up to a key and some tombstones, inside a transaction: no snapshot needs them.

        ``oldest`` is the first version of the snapshot that the log still supports.
        """
        self.connection.execute("DELETE FROM log WHERE key <= ?", (sealed,))
        self.connection.executemany("DELETE FROM tombstones WHERE key = ?", [(int(key),) for key in tombstones])
        self._facts["oldest"] = oldest

    def logged(self, after: int) -> Iterator[tuple[int, str, bytes, int]]:
        """Iterate over the log after a key: key, id, vector, checksum, in the order of keys."""
        return self.connection.execute(
            "SELECT l.key, i.id, l.vector, l.checksum FROM log l JOIN items i USING (key) "
            "WHERE l.key > ? ORDER BY l.key",
            (after,),
        )

    def tombstones(self) -> np.ndarray:
        """Return the keys of vectors in segments that are no longer there, ascending."""
        return all_keys(self.connection.execute("SELECT key FROM tombstones ORDER BY key"))

    def texts(self, keys: Sequence[int]) -> list[str]:
        """Return the metadata of items (as JSON text) by key, in order."""
        found: dict[int, str] = {}
        for start in range(0, len(keys), _CHUNK):
            wanted = ",".join(map(str, keys[start : start + _CHUNK]))
            rows = self.connection.execute(f"SELECT key, metadata, id, checksum FROM items WHERE key IN ({wanted})")
            for key, text, item_id, checksum in rows:
                _check_item(item_id, text, checksum)
                found[key] = text
        missing = next((key for key in keys if key not in found), None)
        if missing is not None:
            raise TophitError(
                f"The index is damaged: {self.path.name} lacks the item with the key {missing}; repair it."
            )
        return [found[key] for key in keys]

    def in_order(self, after: str, most: int) -> list[tuple[str, int, str]]:
        """Return up to ``most`` items (id, key, metadata text) after an id, in the order of ids."""
        query = "SELECT id, key, metadata FROM items WHERE id > ? ORDER BY id LIMIT ?"
        return self.connection.execute(query, (after, most)).fetchall()


def _is_full(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def new_database_name() -> str:
    """Return a name that no database has had."""
    return f"items-{uuid.uuid4().hex[:12]}.sqlite"


def has_log(path: Path) -> bool:
    """Return whether a database has writes that are not folded into its file."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


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
