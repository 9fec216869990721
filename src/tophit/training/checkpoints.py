"""Checkpoints on disk: written atomically, with a checksum; the last few are kept."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from tophit.errors import TophitError
from tophit.files import replace_file

_MARK = b"\nsha256 "
_TAIL = len(_MARK) + 64
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Checkpoints:
    """``checkpoint.pt`` in a folder is the last one; ``checkpoint-1.pt`` the one before, and so on up to ``keep``.

    A file is what ``torch.save`` writes, followed by its SHA-256; it is read without unpickling code.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, keep

    def path(self, age: int = 0) -> Path:
        """Return the path of the last checkpoint, or of the one ``age`` checkpoints older."""
        return self.folder / (f"checkpoint-{age}.pt" if age else "checkpoint.pt")

    def save(self, state: dict[str, Any]) -> None:
        """Write a checkpoint. Earlier ones are kept unchanged until it is complete on disk."""
        with replace_file(self.path()) as temporary:
            with temporary.open("wb") as file:
                writer = _Hashing(file)
                try:
                    torch.save(state, writer)  # type: ignore[arg-type]
                except RuntimeError as error:  # torch says only that its file is not where it should be
                    raise writer.failure or error from error
                file.write(_MARK + writer.digest.hexdigest().encode())
            self._age()

    def load(self, note: Callable[[str], None] = lambda sentence: None) -> dict[str, Any] | None:
        """Return the newest intact checkpoint, or None if there are no checkpoints; damaged ones are reported."""
        problems: list[str] = []
        for path in self._existing():
            try:
                state = read_checkpoint(path)
            except TophitError as error:
                problems.append(str(error))
                continue
            for problem in problems:
                note(f"{problem} The previous one, {path.name}, is used instead.")
            return state
        if problems:
            raise TophitError(f"{problems[0]} No earlier one is intact; delete it to start the run again.")
        return None

    def _existing(self) -> list[Path]:
        older = sorted(self.folder.glob("checkpoint-*.pt"), key=lambda path: int(path.stem.split("-")[1]))
        return [path for path in [self.path(), *older] if path.is_file()]

    def _age(self) -> None:
        """Make each kept checkpoint one older; the last one also keeps its name until the new one replaces it."""
        if not self.path().is_file() or self.keep < 2:
            return
        for age in range(self.keep - 1, 1, -1):
            if self.path(age - 1).is_file():
                self.path(age - 1).replace(self.path(age))
        spare = self.folder / ".checkpoint.pt.older"
        spare.unlink(missing_ok=True)
        try:
            os.link(self.path(), spare)
        except OSError as error:  # a file system without hard links
            if error.errno in _FULL:
                raise
            shutil.copyfile(self.path(), spare)
        spare.replace(self.path(1))


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return a checkpoint's tensors and plain values; a damaged file is an error."""
    try:
        problem = _problem_of(path)
        if problem is None:
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises various unrelated types for a damaged file
        problem = str(error)
    raise TophitError(f"The checkpoint {path} can't be read ({problem}).")


def _problem_of(path: Path) -> str | None:
    """Return what is wrong with a file according to its checksum, or None."""
    length = path.stat().st_size - _TAIL
    digest = hashlib.sha256()
    with path.open("rb") as file:
        left = max(0, length)
        while left and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
        tail = file.read()
    if not tail.startswith(_MARK):
        return "it is cut off: its checksum is missing"
    return None if tail == _MARK + digest.hexdigest().encode() else "its checksum does not match its content"


def is_disk_full(error: OSError) -> bool:
    """Return whether a write failed because the disk is full."""
    return error.errno in _FULL


class _Hashing:
    """A file that knows the digest of what was written to it, and why a write failed."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.digest = hashlib.sha256()
        self.failure: OSError | None = None

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            self.failure = error
            raise

    def flush(self) -> None:
        self.file.flush()
