"""Verify: read every file of a local index and say what is wrong."""

import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tophit.errors import TophitError
from tophit.search.local.database import item_checksum
from tophit.search.local.files import file_facts
from tophit.search.local.manifest import Manifest, read_manifest
from tophit.search.local.state import State, read_state

_CHUNK = 65_536


def verify(folder: Path) -> list[str]:
    """Return what is wrong with the index in a folder, a sentence each; nothing if it is sound."""
    try:
        manifest = read_manifest(folder)
    except TophitError as error:
        return [str(error)]
    problems = list(_file_problems(folder, manifest))
    try:
        state = read_state(folder, manifest, writable=False)
    except TophitError as error:
        return [*problems, str(error)]
    if state is None:
        return [*problems, f"The manifest in {folder} is older than the database."]
    try:
        return [*problems, *_database_problems(state), *_item_problems(state), *_vector_problems(state)]
    except sqlite3.Error as error:
        return [*problems, f"{state.database.path.name}: {error}."]
    finally:
        state.database.close()


def _file_problems(folder: Path, manifest: Manifest) -> Iterator[str]:
    for segment in manifest.segments:
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
    """Every item has one vector, every living vector one item."""
    rows = state.database.connection.execute("SELECT key FROM items ORDER BY key")
    items = np.fromiter((row[0] for row in rows), np.int64)
    living = [part.keys if part.live is None else part.keys[part.live] for part in state.parts()]
    vectors = np.concatenate(living)
    if len(np.unique(vectors)) != len(vectors):
        yield "Some vectors are there twice."
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
