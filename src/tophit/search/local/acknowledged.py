"""The list of acknowledged writes beside the database: what SQLite itself can't tell after its log was damaged.

SQLite drops the damaged end of its write-ahead log in silence, with every write in it. So each write that was
acknowledged leaves a line here, flushed to the disk after the commit and before the caller hears of it: its number, a
digest chained over the content of all writes, when and what. A database that is behind this list has lost writes. One
that is a write ahead was stopped between the two, which is no loss.

A line is a checksum, a space and JSON. When the database is closed, a line keeps the digest of the whole file.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from tophit.errors import TophitError
from tophit.files import replace_file, sync
from tophit.wording import counted

SUFFIX = "-acknowledged"
_MOST_BYTES = 1 << 20
"""Beyond this size only the last line is kept."""
_CHECKSUM = 16


@dataclass(frozen=True)
class Acknowledged:
    """A write: its number, the digest chained over all writes, what it was and when.

    ``file`` is the SHA-256 of the database's file, where this line was written when it was closed.
    """

    number: int
    chain: int
    what: str
    at: str = ""
    file: str = ""

    def __str__(self) -> str:
        return f"{self.what} at {self.at}"


def now() -> str:
    """Return the time of day as it is written into a line."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class AcknowledgedList:
    """The list beside a database's file, open for adding to it."""

    def __init__(self, database: Path) -> None:
        self.path = path_of(database)
        self._handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)

    @classmethod
    def create(cls, database: Path, first: Acknowledged) -> "AcknowledgedList":
        """Begin a list with one line, durably, in place of an older one."""
        with replace_file(path_of(database)) as temporary:
            temporary.write_bytes(_line(first))
        return cls(database)

    def add(self, one: Acknowledged) -> None:
        """Add a line, durably; if that fails the list is as before."""
        size = os.fstat(self._handle).st_size
        try:
            rest = _line(one)
            while rest:  # the system may accept it in pieces
                rest = rest[os.write(self._handle, rest) :]
            os.fdatasync(self._handle)
        except OSError:
            os.ftruncate(self._handle, size)
            raise
        if size > _MOST_BYTES:
            self.close()
            self._handle = AcknowledgedList.create(Path(str(self.path).removesuffix(SUFFIX)), one)._handle

    def cut(self, size: int) -> None:
        """Remove what follows the first ``size`` bytes: a line that a crash left unfinished."""
        os.ftruncate(self._handle, size)
        sync(self.path)

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


@dataclass(frozen=True)
class ReadList:
    """What a list says: its lines, and the bytes up to where the last whole one ends."""

    lines: tuple[Acknowledged, ...]
    whole: int
    size: int

    @property
    def last(self) -> Acknowledged:
        """The latest line."""
        return self.lines[-1]


def path_of(database: Path) -> Path:
    """Return where the list of a database is."""
    return database.with_name(f"{database.name}{SUFFIX}")


def read_list(database: Path) -> ReadList | None:
    """Read and check the list of a database; None if there is none. A line that is being written is left out."""
    path = path_of(database)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TophitError(f"The index in {path.parent} is damaged: {path.name}: {error.strerror}.") from error
    whole = content.rfind(b"\n") + 1
    rest = content[whole:]
    try:
        lines = tuple(_read(line) for line in content[:whole].splitlines())
        if not lines or _is_line(rest[:-1]):  # only its last byte is wrong: no crash leaves that
            raise ValueError("a line has no end")
        if any(one.number > other.number for one, other in pairwise(lines)):
            raise ValueError("the numbers do not ascend")
    except (ValueError, TypeError) as error:
        raise TophitError(
            f"The index in {path.parent} is damaged: {path.name}, the list of acknowledged writes, does not match its "
            "checksums; repair it."
        ) from error
    return ReadList(lines, whole, len(content))


def missing_writes(known: ReadList, number: int) -> str:
    """Return which writes a database lacks that has only those up to a number."""
    lost = [one for one in known.lines if one.number > number and not one.file]
    named = "; ".join(str(one) for one in lost[-5:])
    first = "the last 5 of them: " if len(lost) > 5 else ""
    count = known.last.number - number
    return f"{counted(count, 'acknowledged write')} {'is' if count == 1 else 'are'} missing ({first}{named})"


def _line(one: Acknowledged) -> bytes:
    text = json.dumps(asdict(one)).encode()
    return f"{hashlib.sha256(text).hexdigest()[:_CHECKSUM]} ".encode() + text + b"\n"


def _is_line(line: bytes) -> bool:
    checksum, text = line[: _CHECKSUM + 1], line[_CHECKSUM + 1 :]
    return bool(text) and checksum == f"{hashlib.sha256(text).hexdigest()[:_CHECKSUM]} ".encode()


def _read(line: bytes) -> Acknowledged:
    if not _is_line(line):
        raise ValueError("a line does not match its checksum")
    return Acknowledged(**json.loads(line[_CHECKSUM + 1 :]))


def described(verb: str, ids: Sequence[str]) -> str:
    """Return what a write does, for its line: a verb, how many items, and the first id, shortened."""
    return f"{verb} of {len(ids)} items, the first '{ids[0][:80]}'" if ids else f"{verb} of no items"
