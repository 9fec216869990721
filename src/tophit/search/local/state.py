"""What an open local index consists of: manifest, database, segments and delta, read as one consistent state."""

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tophit.errors import TophitError
from tophit.search.local.database import Database
from tophit.search.local.delta import Delta
from tophit.search.local.files import remove_all
from tophit.search.local.manifest import NAME, PREVIOUS, Manifest, read_manifest
from tophit.search.local.parts import Part
from tophit.search.local.segment import Segment

_TRIES = 20
_OURS = re.compile(r"(segment-|items-|vectors-|\.index\.|\.index\.previous\.)")
"""Files that belong to an index, those of older formats and unfinished ones too."""


@dataclass
class State:
    """An open index."""

    manifest: Manifest
    database: Database
    segments: list[Segment]
    delta: Delta

    def parts(self) -> list[Part]:
        """Return all that is searched, in the order of keys."""
        return [*self.segments, self.delta]

    def kill(self, keys: np.ndarray) -> None:
        """Take ascending keys out of every later search."""
        for part in (*self.segments, self.delta):
            part.kill(keys)


def load(folder: Path, writable: bool) -> State:
    """Read an index. A reader may meet a writer that is replacing files: it looks again then."""
    for _ in range(_TRIES):
        manifest = read_manifest(folder)
        try:
            state = read_state(folder, manifest, writable)
        except TophitError:
            if read_manifest(folder).version == manifest.version:
                raise
            continue
        if state is not None:
            return state
    raise TophitError(f"The index in {folder} changes too fast to be opened; try again.")


def read_state(folder: Path, manifest: Manifest, writable: bool) -> State | None:
    """Open what a manifest names; None if the database has moved on to later ones."""
    database = Database(folder / manifest.database, writable)
    try:
        if manifest.version < database.fact("oldest"):
            database.close()
            return None
        tombstones = database.tombstones()
        segments = [Segment(folder, facts, manifest.dim, tombstones) for facts in manifest.segments]
        delta = Delta.read(manifest.dim, database.logged(manifest.sealed))
    except sqlite3.Error as error:
        database.close()
        raise TophitError(f"The index in {folder} is damaged: {database.path.name}: {error}.") from error
    except BaseException:
        database.close()
        raise
    return State(manifest, database, segments, delta)


def remove_leftovers(folder: Path) -> None:
    """Remove what neither the manifest in force nor the previous one names: crashed work and older generations."""
    named: set[str] = set()
    for name in (NAME, PREVIOUS):
        if not (folder / name).is_file():
            continue
        try:
            named |= read_manifest(folder, name).files()
        except TophitError:
            if name == NAME:
                return  # damaged: a repair may need any file
    ours = {path.name for path in folder.iterdir() if path.is_file() and _OURS.match(path.name)}
    remove_all(folder, {name for name in ours if name.removesuffix("-wal").removesuffix("-shm") not in named})
