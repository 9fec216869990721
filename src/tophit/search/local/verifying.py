"""Verify: read every file of a local index and say what is wrong, whatever the damage is."""

import json
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tophit.errors import TophitError
from tophit.search.local.acknowledged import read_list
from tophit.search.local.database import Database, has_log, item_checksum
from tophit.search.local.fields import field_rows
from tophit.search.local.snapshot import NAME, PREVIOUS, Snapshot, file_facts, read_snapshot
from tophit.search.local.state import State, read_state

_CHUNK = 65_536


def verify(folder: Path) -> list[str]:
    """Return what is wrong with the index in a folder, one sentence each."""
    problems: list[str] = []
    snapshots: dict[str, Snapshot] = {}
    for name in (NAME, PREVIOUS):
        if name == NAME or (folder / name).exists():
            problems += _guarded(name, _read_into(snapshots, folder, name))
    if len(snapshots) == 2 and snapshots[NAME].version > snapshots[PREVIOUS].version + 1:
        del snapshots[PREVIOUS]  # what a repair left of the damaged index
    problems += _guarded("the segments", _file_problems(folder, list(snapshots.values())))
    sound = not problems
    for database in dict.fromkeys(one.database for one in snapshots.values()):
        problems += _guarded(database, _file_digest_problems(folder / database))
        problems += _guarded(database, _database_problems(folder / database))
    if sound and not problems:  # what the files say of each other; files that are damaged are not opened
        problems += _guarded("the index", _state_problems(folder, snapshots))
    return list(dict.fromkeys(problems))


def _guarded(what: str, check: Iterator[str]) -> list[str]:
    """Return the problems that a check finds; that it fails is one too."""
    found: list[str] = []
    try:
        found.extend(check)
    except TophitError as error:
        found.append(str(error))
    except Exception as error:  # damaged bytes can make any reader fail in any way
        found.append(f"{what} can't be read: {error} ({type(error).__name__}).")
    return found


def _read_into(snapshots: dict[str, Snapshot], folder: Path, name: str) -> Iterator[str]:
    snapshots[name] = read_snapshot(folder, name)
    yield from ()


def _file_problems(folder: Path, snapshots: list[Snapshot]) -> Iterator[str]:
    files = {name: facts for one in snapshots for segment in one.segments for name, facts in segment.files.items()}
    for name, expected in files.items():
        try:
            found = file_facts(folder / name)
        except OSError as error:
            yield f"{name} can't be read: {error.strerror}."
            continue
        if found.bytes != expected.bytes:
            yield f"{name} has {found.bytes} bytes instead of {expected.bytes}."
        elif found.sha256 != expected.sha256:
            yield f"{name} does not match its checksum."


def _file_digest_problems(path: Path) -> Iterator[str]:
    """Compare a database's file with the digest that was taken when it was closed, if nobody has written since."""
    known = read_list(path)
    if known is None or not known.last.file or has_log(path):
        return
    if file_facts(path).sha256 != known.last.file and read_list(path) == known:
        yield f"{path.name} does not match the checksum from when it was closed."


def _database_problems(path: Path) -> Iterator[str]:
    """Check the pages, the checksum of every row, and the fields to filter by against the items' metadata."""
    database = Database(path, writable=False)
    try:
        connection, name = database.connection, path.name
        for (text,) in connection.execute("PRAGMA integrity_check"):
            if text != "ok":
                yield f"{name}: {text}."
        known = read_list(path)  # after the database: it is at most a write behind
        if known is not None and known.last.number < database.facts()["changes"] - 1:
            yield f"{name}: its list of acknowledged writes lacks the last ones."
        fields = array("q")
        for key, item_id, metadata, checksum in connection.execute("SELECT key, id, metadata, checksum FROM items"):
            if item_checksum(item_id, metadata) != checksum:
                yield f"{name}: the item '{item_id}' does not match its checksum."
            else:
                fields.extend(_row_hashes(field_rows([(key, json.loads(metadata))])))
        yield from _field_problems(name, fields, array("q", _row_hashes(connection.execute(_ALL_FIELDS))))
        for key, vector, checksum in connection.execute("SELECT key, vector, checksum FROM log"):
            if zlib.crc32(vector) != checksum:
                yield f"{name}: the logged vector {key} does not match its checksum."
    finally:
        database.close()


_ALL_FIELDS = "SELECT field, kind, value, key FROM fields"


def _row_hashes(rows: Iterator[tuple]) -> Iterator[int]:
    """Return hashes of rows of fields that are the same for what SQLite was given and what it gives back."""
    for field, kind, value, key in rows:
        yield hash((field, kind, isinstance(value, float), value, key))


def _field_problems(name: str, expected: Sequence[int], found: Sequence[int]) -> Iterator[str]:
    """Compare the fields to filter by with what the items' metadata says, by the hashes of their rows."""
    many, few = len(np.setdiff1d(found, expected)), len(np.setdiff1d(expected, found))
    if many or few or len(expected) != len(found):
        yield f"{name}: the fields to filter by do not fit the items: {many} too many, {few} missing."


def _state_problems(folder: Path, snapshots: dict[str, Snapshot]) -> Iterator[str]:
    """Check what the files say of each other."""
    snapshot = snapshots[NAME]
    state = read_state(folder, snapshot, writable=False)
    if state is None:
        yield f"The snapshot in {folder} is older than the database."
        return
    try:
        yield from _item_problems(state)
        yield from _log_problems(state, snapshots.get(PREVIOUS, snapshot))
        yield from _vector_problems(state)
    finally:
        state.database.close()


def _item_problems(state: State) -> Iterator[str]:
    """Every item has one vector, every vector that is not deleted one item."""
    items = _keys(state, "items")
    living = [part.keys if part.live is None else part.keys[part.live] for part in state.parts()]
    vectors = np.concatenate(living)
    if len(np.unique(vectors)) != len(vectors):
        yield "Some vectors exist twice."
    if items.max(initial=0) > state.database.fact("last_key"):
        yield "Some items are newer than the last one."
    for keys, others, what in ((items, vectors, "items have no vector"), (vectors, items, "vectors have no item")):
        lost = np.setdiff1d(keys, others)
        if len(lost):
            yield f"{len(lost)} {what}, the first has the key {lost[0]}."


def _log_problems(state: State, previous: Snapshot) -> Iterator[str]:
    """Check that the log has the vectors of all items since the snapshot before, and of no others."""
    items, logged = _keys(state, "items"), _keys(state, "log")
    since = previous.sealed if previous.database == state.snapshot.database else state.snapshot.sealed
    for lost, what in (
        (np.setdiff1d(logged, items), "logged vectors have no item"),
        (np.setdiff1d(items[items > since], logged), "items are not in the log"),
    ):
        if len(lost):
            yield f"{state.database.path.name}: {len(lost)} {what}, the first has the key {lost[0]}."


def _keys(state: State, table: str) -> np.ndarray:
    rows = state.database.connection.execute(f"SELECT key FROM {table} ORDER BY key")
    return np.fromiter((row[0] for row in rows), np.int64)


def _vector_problems(state: State) -> Iterator[str]:
    for part in state.parts():
        for start in range(0, len(part.keys), _CHUNK):
            with np.errstate(all="ignore"):
                lengths = np.linalg.norm(part.vectors[start : start + _CHUNK], axis=1)
            wrong = np.flatnonzero(~(np.abs(lengths - 1) < 1e-3))
            if len(wrong):
                yield f"{len(wrong)} vectors are not unit length, the first has the key {part.keys[start + wrong[0]]}."
                break
