"""Repair: save what matches its checksum of a damaged local index as a new version."""

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tophit.errors import TophitError
from tophit.search.local.acknowledged import described
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
from tophit.search.local.verifying import verify

_SINGLE_STEPS = 20_000
_LAST_KEY = (1 << 63) - 1


@dataclass
class _Found:
    """What could be read: items by key (id, metadata text), and vectors by key."""

    items: dict[int, tuple[str, str]] = field(default_factory=dict)
    vectors: dict[int, np.ndarray] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    """The ids that segments keep beside their vectors."""
    dead: set[int] = field(default_factory=set)


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
    database_read = _read_database(folder / snapshot.database, snapshot.dim, found)
    for segment in {s.name: s for m in snapshots for s in m.segments}.values():
        _read_segment(folder, segment, snapshot.dim, found)
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
    """Take the rows whose checksum matches; the files may be short or missing. The log's vectors come first.

    Where the keys are damaged, a row is taken only if its id is the one that the database has for its key.
    """
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
    good |= _is_sound(folder, segment, "vectors")
    keys_sound = _is_sound(folder, segment, "keys")
    for row, key in enumerate(keys[:count].tolist()):
        item_id = ids[starts[row] : ends[row]].decode(errors="replace")
        if keys_sound or key not in found.items or found.items[key][0] == item_id:
            found.ids[key] = item_id
            if good[row]:
                found.vectors.setdefault(key, vectors[row])


def _is_sound(folder: Path, segment: SegmentFacts, part: str) -> bool:
    name = f"{segment.name}.{part}"
    return file_facts(folder / name) == segment.files.get(name)


def _read_database(path: Path, dim: int, found: _Found) -> bool:
    """Take items and logged vectors whose checksums match; return whether the file could be read at all."""
    connection = _best_view(path)
    if connection is None:
        return False
    with closing(connection):
        connection.text_factory = lambda raw: raw.decode(errors="replace")
        for key, item_id, metadata, checksum in _rows(connection, "key, id, metadata, checksum", "items"):
            if isinstance(item_id, str) and item_checksum(item_id, str(metadata)) == checksum:
                found.items[key] = (item_id, metadata)
        found.dead.update(key for (key,) in _rows(connection, "key", "tombstones"))
        for key, vector, checksum in _rows(connection, "key, vector, checksum", "log"):
            if isinstance(vector, bytes) and len(vector) == 4 * dim and zlib.crc32(vector) == checksum:
                found.vectors[key] = np.frombuffer(vector, np.float32)
    return True


def _best_view(path: Path) -> sqlite3.Connection | None:
    """Open a database with its write-ahead log or without, whichever has more writes; None if it can't be read.

    A log that was folded into the file and then damaged hides newer pages behind older ones.
    """
    views: list[tuple[int, int, sqlite3.Connection]] = []
    for order, how in enumerate(("immutable=1", "mode=ro")):
        if not path.is_file():
            continue
        try:
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error:
            continue
        changes = -1
        with suppress(sqlite3.Error, TypeError):
            changes = int(connection.execute("SELECT value FROM facts WHERE name = 'changes'").fetchone()[0])
        views.append((changes, order, connection))
    if not views:
        return None
    best = max(views, key=lambda view: view[:2])[2]
    for *_, other in views:
        if other is not best:
            other.close()
    return best


def _rows(connection: sqlite3.Connection, columns: str, table: str) -> Iterator[tuple]:
    """Read a table in the order of its keys, which are the first column; step over damaged pages.

    The steps are of one key each, and after many of them they grow, so that they come to an end.
    """
    query = f"SELECT {columns} FROM {table} WHERE key >= ? ORDER BY key"
    start, failures = 0, 0
    while start <= _LAST_KEY:
        try:
            for row in connection.execute(query, (start,)):
                yield row
                start, failures = max(start, row[0] + 1), 0
            return
        except sqlite3.Error:
            failures += 1
            start += 1 if failures < _SINGLE_STEPS else 1 << min(failures - _SINGLE_STEPS, 62)


def _write(folder: Path, name: str, snapshot: Snapshot, found: _Found, kept: dict[str, int]) -> None:
    database = Database.create(folder / name)
    try:
        if kept:
            vectors = np.stack([found.vectors[key] for key in kept.values()])
            metadata = [json.loads(found.items[key][1]) for key in kept.values()]
            with database.transaction(described("repair", list(kept))):
                database.insert(list(kept), vectors, metadata)
    finally:
        database.close()
    publish(
        folder,
        Snapshot(snapshot.version + 2, snapshot.dim, snapshot.fingerprint, name, options=snapshot.options),
    )
