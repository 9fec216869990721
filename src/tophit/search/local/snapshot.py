"""The snapshot ``index.json``: names the files of a local index with their checksums; replaced last and atomically.

After a crash the old or the new snapshot is there. The one before is kept, with its files, as ``index.previous.json``.
The files it names are written through :class:`HashedFile`; :class:`WriterLock` keeps a second writer out.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tophit.errors import TophitError, UsageError
from tophit.files import FileLock, Locked, write_text

FORMAT = 2
NAME = "index.json"
PREVIOUS = "index.previous.json"


@dataclass(frozen=True)
class FileFacts:
    """What a file must be: its size in bytes and the SHA-256 of its content."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class SegmentFacts:
    """An immutable segment: how many vectors, how they are searched, what was measured when it was tuned."""

    name: str
    count: int
    kind: str
    files: dict[str, FileFacts]
    tuning: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """What an index consists of. Vectors with keys up to ``sealed`` are in the segments, later ones in the log."""

    version: int
    dim: int
    fingerprint: str
    database: str
    sealed: int = 0
    segments: tuple[SegmentFacts, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def files(self) -> set[str]:
        """Return the names of the files that belong to it."""
        return {self.database} | {name for segment in self.segments for name in segment.files}


def read_snapshot(folder: Path, name: str = NAME) -> Snapshot:
    """Read and check a snapshot."""
    path = folder / name
    if not path.is_file():
        raise UsageError(f"There is no index in {folder} (no {name} there); make one with: tophit index")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TophitError(f"The index in {folder} is damaged: {name} is not a snapshot ({error!r}).") from error
    if version == 1:
        raise TophitError(f"The index in {folder} was made by an older Tophit; build it again with: tophit index")
    if version != FORMAT:
        raise TophitError(f"{path} has format {version}; this version of Tophit reads {FORMAT}.")
    if content.get("sha256") != _digest(content):
        raise TophitError(f"The index in {folder} is damaged: {name} does not match its checksum.")
    return _from_content(content)


def publish(folder: Path, snapshot: Snapshot) -> None:
    """Make a snapshot the active one, durably; the one before becomes the previous one."""
    path = folder / NAME
    if last_version(folder):  # a damaged one must not replace a good previous one
        write_text(folder / PREVIOUS, path.read_text(encoding="utf-8"))
    content = {"format": FORMAT, **asdict(snapshot)}
    write_text(path, json.dumps({**content, "sha256": _digest(content)}, indent=2) + "\n")


def next_version(snapshot: Snapshot, **changes: Any) -> Snapshot:
    """Return the snapshot that follows, with changes."""
    return replace(snapshot, version=snapshot.version + 1, **changes)


def last_version(folder: Path) -> int:
    """Return the number of the active version; 0 if none can be read."""
    try:
        return read_snapshot(folder).version
    except TophitError:
        return 0


def is_index(folder: str | Path) -> bool:
    """Return whether a folder holds an index."""
    return (Path(folder) / NAME).is_file()


def _digest(content: dict[str, Any]) -> str:
    plain = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _from_content(content: dict[str, Any]) -> Snapshot:
    segments = tuple(
        SegmentFacts(**{**one, "files": {name: FileFacts(**facts) for name, facts in one["files"].items()}})
        for one in content["segments"]
    )
    plain = {name: value for name, value in content.items() if name not in ("format", "sha256", "segments")}
    return Snapshot(**plain, segments=segments)


class HashedFile:
    """A new file, written from start to end; :meth:`finish` makes it durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._hash = hashlib.sha256()
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, content: Any) -> None:
        """Append bytes or an array; the system may accept it in pieces."""
        rest = memoryview(content).cast("B")
        self._hash.update(rest)
        while rest:
            written = os.write(self._handle, rest)
            if not written:
                raise OSError(f"{self.path.name}: nothing more could be written")
            self.bytes += written
            rest = rest[written:]

    def finish(self) -> FileFacts:
        """Flush the file to the disk and return its facts."""
        os.fsync(self._handle)
        self.close()
        return FileFacts(self.bytes, self._hash.hexdigest())

    def close(self) -> None:
        """Close the file without flushing it."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def file_facts(path: Path) -> FileFacts:
    """Read a file and return its facts."""
    with path.open("rb") as file:
        return FileFacts(os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())


def remove_all(folder: Path, names: set[str]) -> None:
    """Remove files that no snapshot names; what can't be removed now is tried again later."""
    for name in names:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError:
            continue


class WriterLock(FileLock):
    """Held from construction until :meth:`release`."""

    def __init__(self, folder: Path) -> None:
        try:
            super().__init__(folder / "lock")
        except Locked as error:
            raise TophitError(
                f"Another process is writing to the index in {folder} ({error.holder}); one writer at a time."
            ) from error


@contextmanager
def locked(folder: Path) -> Iterator[WriterLock]:
    """Take the writer's lock in a folder, which is created if missing; release it only if something fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TophitError(f"{folder} can't be created: {error.strerror}.") from error
    lock = WriterLock(folder)
    try:
        yield lock
    except BaseException:
        lock.release()
        raise
