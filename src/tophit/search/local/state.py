"""What an open local index consists of: snapshot, database, segments and delta, read as one consistent state."""

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tophit.errors import TophitError
from tophit.search.local.acknowledged import SUFFIX
from tophit.search.local.database import Database
from tophit.search.local.delta import Delta
from tophit.search.local.part_search import Part
from tophit.search.local.segment import Segment
from tophit.search.local.snapshot import NAME, PREVIOUS, Snapshot, read_snapshot, remove_all

_TRIES = 20
_OURS = re.compile(r"(segment-|items-|vectors-|\.index\.|\.index\.previous\.)")
"""Files that belong to an index, those of older formats and unfinished ones too."""
_BESIDE = re.compile(rf"(-wal|-shm|{SUFFIX})$")
"""How the names of files end that belong to a database."""


@dataclass
class State:
    """An open index."""

    snapshot: Snapshot
    database: Database
    segments: list[Segment]
    delta: Delta

    def parts(self) -> list[Part]:
        """Return everything that is searched, in the order of keys."""
        return [*self.segments, self.delta]

    @property
    def only_segment(self) -> Segment | None:
        """The segment that has all rows, if one has."""
        return self.segments[0] if len(self.segments) == 1 and self.delta.count == self.delta.dead else None

    def kill(self, keys: np.ndarray) -> None:
        """Hide ascending keys from every later search."""
        for part in (*self.segments, self.delta):
            part.kill(keys)


def load(folder: Path, writable: bool) -> State:
    """Read an index. A reader may meet a writer that is replacing files; it then tries again."""
    for _ in range(_TRIES):
        snapshot = read_snapshot(folder)
        try:
            state = read_state(folder, snapshot, writable)
        except TophitError:
            if read_snapshot(folder).version == snapshot.version:
                raise
            continue
        if state is not None:
            return state
    raise TophitError(f"The index in {folder} changes too fast to be opened; try again.")


def read_state(folder: Path, snapshot: Snapshot, writable: bool) -> State | None:
    """Open what a snapshot names; None if the database has moved on to later snapshots."""
    database = Database(folder / snapshot.database, writable)
    try:
        if snapshot.version < database.fact("oldest"):
            database.close()
            return None
        tombstones = database.tombstones()
        segments = [Segment(folder, facts, snapshot.dim, tombstones) for facts in snapshot.segments]
        delta = Delta.read(snapshot.dim, database.logged(snapshot.sealed))
    except sqlite3.Error as error:
        database.close()
        raise TophitError(f"The index in {folder} is damaged: {database.path.name}: {error}.") from error
    except BaseException:
        database.close()
        raise
    return State(snapshot, database, segments, delta)


def remove_leftovers(folder: Path) -> None:
    """Remove what neither the active nor the previous snapshot names: crashed work and older versions."""
    named: set[str] = set()
    for name in (NAME, PREVIOUS):
        if not (folder / name).is_file():
            continue
        try:
            named |= read_snapshot(folder, name).files()
        except TophitError:
            if name == NAME:
                return  # damaged: a repair may need any file
    ours = {path.name for path in folder.iterdir() if path.is_file() and _OURS.match(path.name)}
    remove_all(folder, {name for name in ours if _BESIDE.sub("", name) not in named})
