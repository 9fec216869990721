"""Verify and repair: read every file of a local index, say what is wrong, and save what matches its checksum."""

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tophit.errors import TophitError
from tophit.search.local.database import Database, item_checksum
from tophit.search.local.segment import checksums
from tophit.search.local.snapshot import (
    NAME,
    PREVIOUS,
    SegmentFacts,
    Snapshot,
    file_facts,
    publish,
    read_snapshot,
)
from tophit.search.local.state import State, read_state

_CHUNK = 65_536


def verify(folder: Path) -> list[str]:
    """Return what is wrong with the index in a folder, one sentence each."""
    try:
        snapshot = read_snapshot(folder)
    except TophitError as error:
        return [str(error)]
    problems = list(_file_problems(folder, snapshot))
    try:
        state = read_state(folder, snapshot, writable=False)
    except TophitError as error:
        return [*problems, str(error)]
    if state is None:
        return [*problems, f"The snapshot in {folder} is older than the database."]
    try:
        return [*problems, *_database_problems(state), *_item_problems(state), *_vector_problems(state)]
    except sqlite3.Error as error:
        return [*problems, f"{state.database.path.name}: {error}."]
    finally:
        state.database.close()


def _file_problems(folder: Path, snapshot: Snapshot) -> Iterator[str]:
    for segment in snapshot.segments:
        for name, expected in segment.files.items():
            try:
                found = file_facts(folder / name)
            except OSError as error:
                yield f"{name} can't be read: {error.strerror}."
                continue
            if found.bytes != expected.bytes:
                yield f"{name} has {found.bytes} bytes instead of {expected.bytes}."
            elif found.sha256 != expected.sha256:
                yield f"{name} does not match its checksum."


def _database_problems(state: State) -> Iterator[str]:
    connection, name = state.database.connection, state.database.path.name
    for (text,) in connection.execute("PRAGMA integrity_check"):
        if text != "ok":
            yield f"{name}: {text}."
    for item_id, metadata, checksum in connection.execute("SELECT id, metadata, checksum FROM items"):
        if item_checksum(item_id, metadata) != checksum:
            yield f"{name}: the item '{item_id}' does not match its checksum."
    for key, vector, checksum in connection.execute("SELECT key, vector, checksum FROM log"):
        if zlib.crc32(vector) != checksum:
            yield f"{name}: the logged vector {key} does not match its checksum."


def _item_problems(state: State) -> Iterator[str]:
    """Every item has one vector, every vector that is not deleted one item."""
    rows = state.database.connection.execute("SELECT key FROM items ORDER BY key")
    items = np.fromiter((row[0] for row in rows), np.int64)
    living = [part.keys if part.live is None else part.keys[part.live] for part in state.parts()]
    vectors = np.concatenate(living)
    if len(np.unique(vectors)) != len(vectors):
        yield "Some vectors exist twice."
    for keys, others, what in ((items, vectors, "items have no vector"), (vectors, items, "vectors have no item")):
        lost = np.setdiff1d(keys, others)
        if len(lost):
            yield f"{len(lost)} {what}, the first has the key {lost[0]}."


def _vector_problems(state: State) -> Iterator[str]:
    for part in state.parts():
        for start in range(0, len(part.keys), _CHUNK):
            with np.errstate(all="ignore"):
                lengths = np.linalg.norm(part.vectors[start : start + _CHUNK], axis=1)
            wrong = np.flatnonzero(~(np.abs(lengths - 1) < 1e-3))
            if len(wrong):
                yield f"{len(wrong)} vectors are not unit length, the first has the key {part.keys[start + wrong[0]]}."
                break


_STEP = 1000


@dataclass
class _Found:
    """What could be read: items by key (id, metadata text), and vectors by key."""

    items: dict[int, tuple[str, str]] = field(default_factory=dict)
    vectors: dict[int, np.ndarray] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    """The ids that segments keep beside their vectors."""
    dead: set[int] = field(default_factory=set)
    last_key: int = 0


def repair(folder: Path, database_name: str) -> list[str]:
    """Repair the index in a folder, whose writer's lock is held; return what was done and lost, one sentence each.

    Damaged files stay until two more versions have been written.
    """
    problems = verify(folder)
    if not problems:
        return []
    snapshots = _readable_snapshots(folder)
    if not snapshots:
        raise TophitError(f"Neither {NAME} nor {PREVIOUS} in {folder} can be read: build the index again.")
    snapshot, found = snapshots[0], _Found()
    for segment in {s.name: s for m in snapshots for s in m.segments}.values():
        _read_segment(folder, segment, snapshot.dim, found)
    database_read = _read_database(folder / snapshot.database, snapshot.dim, found)
    report = list(problems)
    if not database_read:
        found.items = {key: (item_id, "{}") for key, item_id in sorted(found.ids.items())}
        report.append("No item could be read: the metadata is lost, and deleted or replaced items may be back.")
    kept = {item_id: key for key, (item_id, _) in sorted(found.items.items()) if key in found.vectors}
    _write(folder, database_name, snapshot, found, kept)
    lost = sorted(_lost(found) - set(kept)) if database_read else []
    if lost:
        some = ", ".join(f"'{one}'" for one in lost[:10])
        report.append(f"{len(lost)} items are lost: {some}{', ...' if len(lost) > 10 else ''}.")
    return [*report, f"{len(kept)} items were kept in a new version of the index; compact it to make searches fast."]


def _lost(found: _Found) -> set[str]:
    """Return the ids of items without a vector, and of vectors without an item or a tombstone."""
    without = {item_id for key, (item_id, _) in found.items.items() if key not in found.vectors}
    return without | {one for key, one in found.ids.items() if key not in found.items and key not in found.dead}


def _readable_snapshots(folder: Path) -> list[Snapshot]:
    found: list[Snapshot] = []
    for name in (NAME, PREVIOUS):
        with suppress(TophitError):
            found.append(read_snapshot(folder, name))
    return [one for one in found if one.database == found[0].database]


def _read_segment(folder: Path, segment: SegmentFacts, dim: int, found: _Found) -> None:
    """Take the rows whose checksum matches; the files may be short or missing."""
    try:
        keys, sums, ends = (
            np.fromfile(folder / f"{segment.name}.{part}", kind)
            for part, kind in (("keys", np.int64), ("sums", np.uint32), ("ends", np.int64))
        )
        ids = (folder / f"{segment.name}.ids").read_bytes()
        numbers = np.fromfile(folder / f"{segment.name}.vectors", np.float32)
    except OSError:
        return
    count = min(len(keys), len(sums), len(ends), len(numbers) // dim)
    vectors = numbers[: count * dim].reshape(count, dim)
    starts = np.concatenate([[0], ends[:-1]])
    good = checksums(vectors) == sums[:count] if count else np.zeros(0, bool)
    for row in range(count):
        with suppress(UnicodeDecodeError):
            found.ids[int(keys[row])] = ids[starts[row] : ends[row]].decode()
        if good[row]:
            found.vectors[int(keys[row])] = vectors[row]
    found.last_key = max(found.last_key, int(keys[:count].max(initial=0)))


def _read_database(path: Path, dim: int, found: _Found) -> bool:
    """Take items and logged vectors whose checksums match; return whether the file could be read at all."""
    if not path.is_file():
        return False
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        return False
    with closing(connection):
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        last = found.last_key
        for query in ("SELECT value FROM facts WHERE name = 'last_key'", "SELECT max(key) FROM log"):
            with suppress(sqlite3.Error):
                last = max(last, connection.execute(query).fetchone()[0] or 0)
        for key, item_id, metadata, checksum in _rows(connection, "key, id, metadata, checksum", "items", last):
            if item_checksum(item_id, metadata) == checksum:
                found.items[key] = (item_id, metadata)
        found.dead.update(key for (key,) in _rows(connection, "key", "tombstones", last))
        for key, vector, checksum in _rows(connection, "key, vector, checksum", "log", last):
            if zlib.crc32(vector) == checksum and len(vector) == 4 * dim:
                found.vectors[key] = np.frombuffer(vector, np.float32)
    return True


def _rows(connection: sqlite3.Connection, columns: str, table: str, last: int) -> Iterator[tuple]:
    """Read a table in steps of its keys; where a step hits a damaged page, row by row."""
    query = f"SELECT {columns} FROM {table} WHERE key BETWEEN ? AND ?"
    for start in range(1, last + 1, _STEP):
        try:
            rows = connection.execute(query, (start, start + _STEP - 1)).fetchall()
        except sqlite3.Error:
            rows = []
            for key in range(start, start + _STEP):
                with suppress(sqlite3.Error):
                    rows += connection.execute(query, (key, key)).fetchall()
        yield from rows


def _write(folder: Path, name: str, snapshot: Snapshot, found: _Found, kept: dict[str, int]) -> None:
    database = Database.create(folder / name)
    try:
        if kept:
            vectors = np.stack([found.vectors[key] for key in kept.values()])
            metadata = [json.loads(found.items[key][1]) for key in kept.values()]
            with database.transaction():
                database.insert(list(kept), vectors, metadata)
    finally:
        database.close()
    publish(
        folder,
        Snapshot(snapshot.version + 2, snapshot.dim, snapshot.fingerprint, name, options=snapshot.options),
    )
