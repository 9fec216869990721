"""Copy a local index while others write to it: the state of one moment, whole, and only what the copy lacks.

Segments never change, so a copy made earlier keeps those that it has. The database is copied page by page from one
read transaction.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tophit.errors import TophitError
from tophit.files import sync
from tophit.search.local.acknowledged import Acknowledged, AcknowledgedList, now
from tophit.search.local.database import new_database_name
from tophit.search.local.snapshot import (
    PREVIOUS,
    FileFacts,
    HashedFile,
    WriterLock,
    file_facts,
    publish,
    remove_all,
)
from tophit.search.local.state import State, load, remove_leftovers
from tophit.search.local.verifying import verify

_TRIES = 10
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Copied:
    """What a copy took: items in it, bytes that were written, and bytes that were there from before."""

    items: int = 0
    written: int = 0
    kept: int = 0

    def __add__(self, other: "Copied") -> "Copied":
        return Copied(self.items + other.items, self.written + other.written, self.kept + other.kept)


def copy_index(source: Path, target: Path) -> Copied:
    """Copy the index in a folder to another, which may hold an earlier copy; the copy is verified."""
    target.mkdir(parents=True, exist_ok=True)
    lock = WriterLock(target)
    try:
        copied = _copy_some_moment(source, target)
        problems = verify(target)
    finally:
        lock.release()
    if problems:
        raise TophitError(f"The copy in {target} is not sound: {problems[0]} Verify {source}, and try again.")
    return copied


def _copy_some_moment(source: Path, target: Path) -> Copied:
    for _ in range(_TRIES):
        state = load(source, writable=False)
        try:
            return _copy(state, source, target)
        except FileNotFoundError:  # a writer has replaced segments meanwhile, so there is a newer state
            continue
        finally:
            state.database.close()
    raise TophitError(f"The index in {source} changes too fast to be copied; try again.")


def _copy(state: State, source: Path, target: Path) -> Copied:
    expected = {name: facts for segment in state.snapshot.segments for name, facts in segment.files.items()}
    written = kept = 0
    for name, facts in expected.items():
        if _is_there(target / name, facts):
            kept += facts.bytes
        else:
            _copy_file(source / name, target / name, facts)
            written += facts.bytes
    name = new_database_name()
    written += _copy_database(state, target / name)
    sync(target)
    publish(target, replace(state.snapshot, database=name))
    remove_all(target, {PREVIOUS})  # a copy is one state
    remove_leftovers(target)
    return Copied(sum(part.live_count for part in state.parts()), written, kept)


def _is_there(path: Path, facts: FileFacts) -> bool:
    return path.is_file() and path.stat().st_size == facts.bytes and file_facts(path) == facts


def _copy_file(source: Path, target: Path, facts: FileFacts) -> None:
    with source.open("rb") as file:
        target.unlink(missing_ok=True)
        copy = HashedFile(target)
        try:
            while block := file.read(_BLOCK):
                copy.write(block)
            found = copy.finish()
        finally:
            copy.close()
    if found != facts:
        raise TophitError(f"{source} does not match its checksum: the index is damaged; repair it first.")


def _copy_database(state: State, path: Path) -> int:
    """Copy the database as the state's read transaction sees it, with its list of acknowledged writes."""
    with closing(sqlite3.connect(path)) as copy:
        copy.execute("PRAGMA synchronous=FULL")
        state.database.connection.backup(copy, pages=-1)
    facts = state.database.facts()
    if "chain" in facts:  # not in one of an older version
        digest = file_facts(path).sha256
        AcknowledgedList.create(path, Acknowledged(facts["changes"], facts["chain"], "backup", now(), digest)).close()
    return path.stat().st_size
