"""Writing files so that a crash leaves the old or the new content, never half of one; JSON that any reader accepts."""

import fcntl
import hashlib
import json
import math
import os
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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


def check_there(folder: str | Path, option: str) -> None:
    """Raise if a folder to read from is not there; ``option`` is where it was named."""
    if not Path(folder).is_dir():
        raise UsageError(f"{option}: there is no folder {folder}.")


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


def check_plain_file(path: str | Path) -> None:
    """Raise if a path is there and not a plain file: reading a pipe or a device may never end."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
        kind = next((word for is_kind, word in kinds.items() if is_kind(mode)), "a device")
        raise TophitError(f"{path} is {kind}, not a plain file.")


def read_small_json(path: str | Path, most_bytes: int = 1 << 20) -> Any:
    """Return the value in a small JSON file; one that is too large, or has NaN or infinity, is a ``ValueError``."""
    check_plain_file(path)
    size = Path(path).stat().st_size
    if size > most_bytes:
        raise ValueError(f"it has {size:,} bytes, more than {most_bytes:,}")
    return json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


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


class Locked(TophitError):
    """Another process holds a lock; ``holder`` says which, if it is known."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"{holder} holds the lock.")
        self.holder = holder


class FileLock:
    """A lock that a file stands for, held until :meth:`release` or the end of the process; the file says by whom."""

    def __init__(self, path: Path) -> None:
        self._take(path)
        while not self._is_current(path):  # who held it before has removed the file meanwhile
            self.release()
            self._take(path)
        with suppress(OSError):  # on a full disk too, the lock holds
            os.ftruncate(self.handle, 0)
            os.write(self.handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    def _take(self, path: Path) -> None:
        try:
            self.handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise TophitError(f"{path} can't be written: {error.strerror}.") from error
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self.handle, 1000).decode(errors="replace").strip()
            self.release()
            raise Locked(holder or "another process") from error

    def _is_current(self, path: Path) -> bool:
        try:
            return os.path.samestat(os.fstat(self.handle), os.stat(path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others have it."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_checked_json(path: str | Path, value: Mapping[str, Any]) -> None:
    """Write a mapping as :func:`write_json` does, with a checksum under ``sha256``."""
    plain = without_nan(value)
    write_json(path, {**plain, "sha256": _json_digest(plain)})


def read_checked_json(path: str | Path) -> dict[str, Any]:
    """Return what :func:`write_checked_json` wrote; a file of an older version has no checksum."""
    fields = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(fields, dict):
        raise ValueError("it is not a mapping")
    checksum = fields.pop("sha256", None)
    if checksum not in (None, _json_digest(fields)):
        raise ValueError("it does not match its checksum")
    return fields


def _json_digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def settings_folder() -> Path:
    """Return the folder of the user's settings: ``TOPHIT_CONFIG``, or else ``tophit`` where the system keeps them."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Path(os.environ.get("TOPHIT_CONFIG") or base / "tophit")


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
