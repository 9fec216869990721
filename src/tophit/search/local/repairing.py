"""Repair: gather every item and vector that matches its checksum, and write them as a new version of the index."""

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
from tophit.search.local.manifest import NAME, PREVIOUS, Manifest, SegmentFacts, publish, read_manifest
from tophit.search.local.segment import checksums
from tophit.search.local.verifying import verify

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
    """Mend the index in a folder, whose writer's lock is held; return what was done and lost, a sentence each.

    Damaged files are left; they go when the next version but one is written.
    """
    problems = verify(folder)
    if not problems:
        return []
    manifests = _readable_manifests(folder)
    if not manifests:
        raise TophitError(f"Neither {NAME} nor {PREVIOUS} in {folder} can be read: build the index anew.")
    manifest, found = manifests[0], _Found()
    for segment in {s.name: s for m in manifests for s in m.segments}.values():
        _read_segment(folder, segment, manifest.dim, found)
    database_read = _read_database(folder / manifest.database, manifest.dim, found)
    report = list(problems)
    if not database_read:
        found.items = {key: (item_id, "{}") for key, item_id in sorted(found.ids.items())}
        report.append("No item could be read: the metadata are lost, and items deleted or replaced may be back.")
    kept = {item_id: key for key, (item_id, _) in sorted(found.items.items()) if key in found.vectors}
    _write(folder, database_name, manifest, found, kept)
    lost = sorted(_lost(found) - set(kept)) if database_read else []
    if lost:
        some = ", ".join(f"'{one}'" for one in lost[:10])
        report.append(f"{len(lost)} items are lost: {some}{', ...' if len(lost) > 10 else ''}.")
    return [*report, f"{len(kept)} items were kept in a new version of the index; compact it to make searches fast."]


def _lost(found: _Found) -> set[str]:
    """Name the items without a vector, and the vectors that neither an item nor a tombstone belongs to."""
    without = {item_id for key, (item_id, _) in found.items.items() if key not in found.vectors}
    return without | {one for key, one in found.ids.items() if key not in found.items and key not in found.dead}


def _readable_manifests(folder: Path) -> list[Manifest]:
    found: list[Manifest] = []
    for name in (NAME, PREVIOUS):
        with suppress(TophitError):
            found.append(read_manifest(folder, name))
    return [one for one in found if one.database == found[0].database]


def _read_segment(folder: Path, segment: SegmentFacts, dim: int, found: _Found) -> None:
    """Take the rows whose checksum holds; the files may be short or missing."""
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
    """Take items and logged vectors whose checksums hold; say whether the file could be read at all."""
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


def _write(folder: Path, name: str, manifest: Manifest, found: _Found, kept: dict[str, int]) -> None:
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
        Manifest(manifest.version + 2, manifest.dim, manifest.fingerprint, name, options=manifest.options),
    )
