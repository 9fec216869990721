"""The process that writes tells the others at once that there is something new, so that they show it."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_ENDING = ".follow"
_REST = 3
"""After each look, a reader leaves the index to its searches for so many times as long as the look took."""


class Announcer:
    """Tells the readers in a folder that there is something new."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def announce(self) -> None:
        """Tell all of them; one that is gone looks when it is back, and one with many messages looks anyway."""
        for path in self._folder.glob(f"*{_ENDING}"):
            with suppress(OSError):
                self._socket.sendto(b"!", str(path))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class Follower:
    """Calls ``look`` as soon as it is told to."""

    def __init__(self, folder: Path, number: int, look: Callable[[], Awaitable[Any]]) -> None:
        self._look = look
        self._told = asyncio.Event()
        self._path = folder / f"{number}{_ENDING}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    async def run(self) -> None:
        """Follow until cancelled."""
        self._path.unlink(missing_ok=True)  # of the process that had this number before
        self._socket.bind(str(self._path))
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._hear)
        try:
            while True:
                await self._told.wait()
                self._told.clear()
                start = time.perf_counter()
                await self._look()
                await asyncio.sleep(_REST * (time.perf_counter() - start))
        finally:
            loop.remove_reader(self._socket)
            self._socket.close()

    def _hear(self) -> None:
        with suppress(OSError):
            while True:
                self._socket.recv(16)
                self._told.set()
