"""A cache of decoded pictures, up to a number of bytes, shared by all processes that read images.

The store is a file: on disk, where later runs find it again, or in memory only, where it ends with the process.
"""

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tophit.errors import UsageError
from tophit.files import cache_folder
from tophit.images.decode import Box

_ENTRY = 3  # numbers per row: its place (0: none), height, width
_WORD = np.dtype(np.int64).itemsize


class DecodedCache:
    """Maps row numbers to pixels, uint8 (H, W, 3). Once full it keeps no new pictures; nothing is ever replaced."""

    def __init__(self, rows: int, most_bytes: int, path: Path | None = None) -> None:
        self.first_picture = _WORD * (1 + _ENTRY * rows)  # before it: the end of the used space, and the entries
        self.most_bytes = most_bytes
        if path is None:
            if not hasattr(os, "memfd_create"):
                raise UsageError("data.cache: 'ram' needs Linux; use 'disk'.")
            handle = os.memfd_create("tophit-decoded")
            self.path = f"/proc/{os.getpid()}/fd/{handle}"  # other processes open it by this path
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            self.path = str(path)
        self.handle: int | None = handle
        self.threads = threading.Lock()
        with self._locked():
            if os.fstat(handle).st_size < self.first_picture:
                os.ftruncate(handle, self.first_picture)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "handle": None, "threads": None}

    def get(self, row: int) -> np.ndarray | None:
        """Return the pixels of a row, if they are kept."""
        place, height, width = self._words(1 + _ENTRY * row, _ENTRY)
        if not place:
            return None
        size = height * width * 3
        content = os.pread(self._open(), size, place)
        return np.frombuffer(content, np.uint8).reshape(height, width, 3) if len(content) == size else None

    def put(self, row: int, pixels: np.ndarray) -> bool:
        """Keep the pixels of a row if there is room; return whether they are kept."""
        handle = self._open()
        with self._locked():
            place = max(self._words(0, 1)[0], self.first_picture)
            if self._words(1 + _ENTRY * row, 1)[0] or place - self.first_picture + pixels.nbytes > self.most_bytes:
                return False
            try:
                self._write(place + pixels.nbytes, at=0)
            except OSError:  # a full disk: nothing more is kept
                return False
        try:
            if os.pwrite(handle, np.ascontiguousarray(pixels).data, place) < pixels.nbytes:
                return False
        except OSError:
            return False
        self._write(place, pixels.shape[0], pixels.shape[1], at=1 + _ENTRY * row)  # last: its pixels are complete
        return True

    @property
    def used_bytes(self) -> int:
        """The number of bytes of pictures kept."""
        return max(0, self._words(0, 1)[0] - self.first_picture)

    def close(self) -> None:
        """Release the memory or the file handle."""
        if self.handle is not None:
            os.close(self.handle)
            self.handle = None

    def _open(self) -> int:
        if self.handle is None:  # in another process, which received this object by pickle
            self.handle = os.open(self.path, os.O_RDWR)
            self.threads = threading.Lock()
        return self.handle

    def _words(self, first: int, count: int) -> list[int]:
        content = os.pread(self._open(), _WORD * count, _WORD * first)
        return np.frombuffer(content, np.int64).tolist()

    def _write(self, *words: int, at: int) -> None:
        os.pwrite(self._open(), np.asarray(words, np.int64).data, _WORD * at)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = self._open()
        with self.threads:
            fcntl.lockf(handle, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(handle, fcntl.LOCK_UN)


def decoded_cache(
    kind: str, pictures: Sequence[tuple[Path, Box | None]], side: int, gigabytes: float
) -> DecodedCache | None:
    """Return the cache a recipe asks for: ``none``, ``ram`` or ``disk``. On disk, files and boxes decide its name."""
    if kind == "none":
        return None
    most_bytes = int(gigabytes * 1e9)
    if kind == "ram":
        return DecodedCache(len(pictures), most_bytes)
    summary = hashlib.sha256(f"{side} {most_bytes}".encode())
    for path, box in pictures:
        summary.update(repr((str(path.absolute()), box, _state(path))).encode())
    return DecodedCache(len(pictures), most_bytes, cache_folder() / "decoded" / f"{summary.hexdigest()[:32]}.pixels")


def _state(path: Path) -> tuple[int, int] | None:
    """Return values that change when the file does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
