"""Writing files so that a crash leaves the old or the new content, never half of one; JSON that any reader accepts."""

import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tophit.errors import TophitError, UsageError


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


def check_folder(folder: str | Path, option: str) -> None:
    """Raise, before any work is done, if a folder can't be made or written to; ``option`` is where it was named."""
    folder = Path(folder).expanduser()
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise UsageError(f"{option}: {there} is a file, not a folder; name another folder.")
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise TophitError(f"{option}: can't write to {there}: {error.strerror}. Name another folder.") from error


def check_file(path: str | Path, option: str) -> None:
    """Raise if a file can't be written, before any work is done; the folder that is to hold it must exist."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise UsageError(f"{option}: {path} is a folder; name a file.")
    if not path.parent.is_dir():
        raise UsageError(f"{option}: there is no folder {path.parent} to write {path.name} to.")
    check_folder(path.parent, option)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file durably and atomically."""
    with replace_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Write a value as an indented JSON file, durably and atomically; NaN and infinity become null."""
    write_text(path, json.dumps(without_nan(value), indent=2, ensure_ascii=False) + "\n")


def without_nan(value: Any) -> Any:
    """Return a nested value as plain JSON types; NaN and infinity, which JSON does not have, become None.

    >>> without_nan({"mean": float("nan"), 3: (1.5, float("inf"))})
    {'mean': None, '3': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): without_nan(each) for key, each in value.items()}
    if hasattr(value, "tolist"):  # an array or a number of NumPy
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json_lines(path: str | Path) -> list[Any]:
    """Return the values of a JSON Lines file up to the first broken line: the last one may be half written."""
    found = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


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


def check_cache() -> None:
    """Raise if the cache can't be written to, with what to do about it."""
    check_folder(cache_folder(), "The cache (the variable TOPHIT_CACHE names its folder)")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
