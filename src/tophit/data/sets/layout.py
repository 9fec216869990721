"""Finding and reading the files of an archive, with messages that say what is missing and where it comes from."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tophit.errors import TophitError, UsageError


def find_folder(root: str | Path, marker: str, title: str, archives: str) -> Path:
    """Return the set's folder: the one that holds ``marker``, either the root or a folder directly below it.

    Alternatives in ``marker`` are separated by ``|``.
    """
    root = Path(root).expanduser()
    if not root.is_dir():
        raise UsageError(f"There is no folder {root}; give the folder into which {archives} was unpacked.")
    markers = marker.split("|")
    below = sorted(child for child in root.iterdir() if child.is_dir())
    for folder in (root, *below):
        if any((folder / name).exists() for name in markers):
            return folder
    wanted = " or ".join(str(root / name) for name in markers)
    raise TophitError(
        f"{title}: there is no {wanted} (nor in a folder directly below {root}). "
        f"It is in {archives}; unpack that here, or give the folder it was unpacked into."
    )


def first_existing(folder: Path, *names: str, archive: str) -> Path:
    """Return the first path that exists of several possible ones; if none does, raise an error that lists them."""
    for name in names:
        if (folder / name).exists():
            return folder / name
    places = " or ".join(str(folder / name) for name in names)
    raise TophitError(f"Missing: {places}. It is in {archive}.")


def table(path: Path, columns: int, archive: str, skip: int = 0) -> Iterator[list[str]]:
    """Yield the lines of a text table as fields separated by blanks; the last field keeps its blanks.

    Windows line ends, empty lines, a byte order mark and the first ``skip`` lines are ignored.
    """
    if not path.is_file():
        raise TophitError(f"Missing: {path}. It is in {archive}.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise TophitError(f"{path} is not text in UTF-8: {error}.") from error
    for number, line in enumerate(lines, 1):
        if number <= skip or not line.strip():
            continue
        fields = line.strip().split(maxsplit=columns - 1)
        if len(fields) != columns:
            raise TophitError(f"{path}, line {number}: expected {columns} fields separated by blanks, got {line!r}.")
        yield fields


def number(text: str, path: Path, what: str) -> int:
    """Return a whole number from a table; anything else is an error that names the file."""
    try:
        return int(text)
    except ValueError:
        raise TophitError(f"{path}: {what} must be a whole number, not '{text}'.") from None


def numbers(texts: Sequence[str], path: Path) -> list[float]:
    """Return the numbers in a line, such as a box; anything else is an error that names the file."""
    try:
        return [float(text) for text in texts]
    except ValueError:
        raise TophitError(f"{path}: expected numbers, got '{' '.join(texts)}'.") from None
