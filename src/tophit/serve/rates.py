"""How many requests a second each client may make."""

import fcntl
import hashlib
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tophit.serve.problems import Problem

_SLOTS = 16_384
_NEAR = 8
"""Places where a client's bucket may be; of more clients, the one that was silent longest is forgotten."""
_BUCKET = struct.Struct("<8sdd")
_EMPTY = bytes(8)
_BURST_SECONDS = 2.0


class Rates:
    """A bucket of requests for each client, which fills at its rate and holds those of two seconds.

    They are in a table of fixed size; with a ``path`` in a file that several processes share.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, path: Path | None = None) -> None:
        self._clock = clock
        self._file: int | None = None
        self._table: bytearray | mmap.mmap = bytearray()
        if path is None:
            self._table = bytearray(_SLOTS * _BUCKET.size)
        else:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(self._file, _SLOTS * _BUCKET.size)
            self._table = mmap.mmap(self._file, _SLOTS * _BUCKET.size)

    def take(self, who: str, rate: float) -> None:
        """Count a request, or raise a Problem that says when to come back."""
        name, most = (
            hashlib.blake2b(who.encode(errors="replace"), digest_size=8).digest(),
            max(1.0, rate * _BURST_SECONDS),
        )
        with self._turn():
            now = self._clock()
            place, left = self._find(name, most, rate, now)
            enough = left >= 1
            _BUCKET.pack_into(self._table, place, name, left - enough, now)
        if not enough:
            seconds = max(1, round((1 - left) / rate + 0.5))
            raise Problem(429, f"More than {rate:g} requests a second; wait a moment.", {"Retry-After": str(seconds)})

    def _find(self, name: bytes, most: float, rate: float, now: float) -> tuple[int, float]:
        """Return where a client's bucket is, or is to be, and what is in it now."""
        first = int.from_bytes(name, "little")
        oldest, since = 0, float("inf")
        for step in range(_NEAR):
            place = (first + step) % _SLOTS * _BUCKET.size
            owner, left, at = _BUCKET.unpack_from(self._table, place)
            if owner == name:
                return place, min(most, left + rate * max(0.0, now - at))
            if owner == _EMPTY:
                return place, most
            if at < since:
                oldest, since = place, at
        return oldest, most

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Keep other processes out."""
        if self._file is None:
            yield
            return
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
