"""Many records of one size in one file that is mapped into memory, and an index that finds them by key.

A record is entered into the index only after it is on the disk: a killed process or a full disk leaves records that
nobody reads, never wrong ones. One process writes at a time; others wait for it, and find what it wrote.
"""

import errno
import fcntl
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tophit.errors import TophitError
from tophit.models.feature_cache import lookup

_ENTER_EVERY = 2.0  # seconds between entries into the index; what is not entered is lost when the process is killed
_FULL = (errno.ENOSPC, errno.EDQUOT)


class RecordStore:
    """Records of one shape and type in a folder, by keys."""

    def __init__(self, folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.shape, self.dtype = folder, shape, dtype
        self.bytes_each = math.prod(shape) * dtype.itemsize
        self._values = folder / "values.bin"
        self._values.touch()

    def places(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """Return the numbers of the records of those keys that have one."""
        with closing(self._index()) as index:
            found = lookup(index, "SELECT key, place FROM record WHERE key IN", keys)
        whole = self._values.stat().st_size // self.bytes_each  # fewer than entered if somebody cut the file
        return {key: place for key, place in found.items() if place < whole}

    def values(self) -> np.ndarray:
        """Return all records (n, *shape), mapped into memory: only what is used is read."""
        count = self._values.stat().st_size // self.bytes_each
        if not count:
            return np.empty((0, *self.shape), self.dtype)
        return np.memmap(self._values, self.dtype, "r", shape=(count, *self.shape))

    @contextmanager
    def writing(self, on_wait: Callable[[], None]) -> Iterator["RecordWriter"]:
        """Yield a writer, alone among all processes; call ``on_wait`` if another one must finish first."""
        with (self.folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the other process, however that ends
            with closing(self._index()) as index, self._values.open("r+b") as file:
                writer = RecordWriter(index, file.fileno(), self)
                try:
                    yield writer
                    writer.enter()
                finally:
                    writer.give_back()

    def _index(self) -> sqlite3.Connection:
        index = sqlite3.connect(self.folder / "index.sqlite", timeout=60)
        index.execute("CREATE TABLE IF NOT EXISTS record (key BLOB PRIMARY KEY, place INTEGER) WITHOUT ROWID")
        return index


class RecordWriter:
    """Appends records to a store."""

    def __init__(self, index: sqlite3.Connection, file: int, store: RecordStore) -> None:
        self._index, self._file, self._store = index, file, store
        last = index.execute("SELECT max(place) FROM record").fetchone()[0]
        self._next = 0 if last is None else last + 1
        self._waiting: list[tuple[bytes, int]] = []
        self._entered = time.monotonic()

    def reserve(self, count: int) -> None:
        """Claim the room for further records now, so that a full disk is noticed before they are computed."""
        if count and hasattr(os, "posix_fallocate"):  # a Mac has none
            self._on_disk(lambda: os.posix_fallocate(self._file, self._start(self._next), self._start(count)))

    def append(self, keys: Sequence[bytes], records: np.ndarray) -> None:
        """Write records (n, *shape) under their keys."""
        content = np.ascontiguousarray(records, self._store.dtype).data.cast("B")
        self._on_disk(lambda: _write_all(self._file, content, self._start(self._next)))
        self._waiting += [(key, self._next + i) for i, key in enumerate(keys)]
        self._next += len(keys)
        if time.monotonic() - self._entered >= _ENTER_EVERY:
            self.enter()

    def give_back(self) -> None:
        """Release the room that was claimed and not used."""
        os.ftruncate(self._file, self._start(self._next))

    def enter(self) -> None:
        """Enter the records written so far into the index, once they are on the disk."""
        self._on_disk(lambda: os.fsync(self._file))
        with self._index:
            self._index.executemany("INSERT OR REPLACE INTO record VALUES (?, ?)", self._waiting)
        self._waiting.clear()
        self._entered = time.monotonic()

    def _start(self, place: int) -> int:
        return place * self._store.bytes_each

    def _on_disk(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise TophitError(
                f"The disk of {self._store.folder} is full. What is there already is kept: make room and run the "
                "command again, or set TOPHIT_CACHE to a folder on another disk."
            ) from error


def _write_all(file: int, content: memoryview, start: int) -> None:
    while content:
        written = os.pwrite(file, content, start)
        content, start = content[written:], start + written
