"""Writing files so that a crash leaves the old or the new content, never half of one."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tophit.errors import TophitError


@contextmanager
def replace_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it replaces ``path`` durably, else it is removed."""
    path = Path(path)
    if path.is_dir():
        raise TophitError(f"{path} can't be written: it is a folder.")
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise TophitError(f"{path} can't be written: {error.strerror}.") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file durably and atomically."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def create_text(path: str | Path, text: str) -> bool:
    """Write a text file atomically unless it exists; return whether this call wrote it.

    If several processes do so at the same time, one succeeds.
    """
    path = Path(path)
    own = path.with_name(f".{path.name}.{os.getpid()}")
    write_text(own, text)
    try:
        os.link(own, path)
    except FileExistsError:
        return False
    finally:
        own.unlink()
    return True


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """Return the folder for files that can be rebuilt: ``TOPHIT_CACHE``, or else ``~/.cache/tophit``."""
    return Path(os.environ.get("TOPHIT_CACHE") or Path.home() / ".cache" / "tophit")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
