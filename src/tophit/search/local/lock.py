"""One writer at a time: an advisory lock on a file, which the system gives up when its process dies."""

import fcntl
import os
from pathlib import Path

from tophit.errors import TophitError


class WriterLock:
    """Held from construction until :meth:`release`."""

    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        try:
            self.handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise TophitError(f"{path} can't be written: {error.strerror}.") from error
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self.handle)
            raise TophitError(f"Another process is writing to the index in {folder}; one writer at a time.") from error

    def release(self) -> None:
        """Let others write."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1
