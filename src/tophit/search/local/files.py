"""Writing the files of a segment: every byte counted and hashed, on the disk before anyone is told of it."""

import hashlib
import os
from pathlib import Path
from typing import Any

from tophit.search.local.manifest import FileFacts


class HashedFile:
    """A new file written from its beginning; :meth:`finish` makes it durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._hash = hashlib.sha256()
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, content: Any) -> None:
        """Append all of the content, bytes or an array; the system may take it in pieces."""
        rest = memoryview(content).cast("B")
        self._hash.update(rest)
        while rest:
            written = os.write(self._handle, rest)
            if not written:
                raise OSError(f"{self.path.name}: nothing more could be written")
            self.bytes += written
            rest = rest[written:]

    def finish(self) -> FileFacts:
        """Put the file on the disk and return its facts."""
        os.fsync(self._handle)
        self.close()
        return FileFacts(self.bytes, self._hash.hexdigest())

    def close(self) -> None:
        """Close without a promise."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def file_facts(path: Path) -> FileFacts:
    """Read a file and return its facts."""
    with path.open("rb") as file:
        return FileFacts(os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())


def remove_all(folder: Path, names: set[str]) -> None:
    """Remove files that no manifest names; what can't be removed is left for the next time."""
    for name in names:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError:
            continue
