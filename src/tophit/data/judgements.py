"""Graded judgements from a TREC qrels file: lines ``query 0 item grade``, of images by their names."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tophit.data.manifest import ImageRow, Manifest
from tophit.errors import TophitError, UsageError


class Judgement(NamedTuple):
    """How relevant an item is to a query: 0 not at all, higher is more."""

    query: str
    item: str
    grade: float


def read_judgements(path: str | Path) -> list[Judgement]:
    """Read a qrels file: four fields a line, separated by blanks; the second is ignored, grades below 0 count as 0."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UsageError(f"There are no judgements at {path}; name a TREC qrels file.") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder; name a TREC qrels file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TophitError(f"The judgements {path} can't be read: {error}.") from error
    found = [_judgement(line.split(), f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise TophitError(f"{path} has no judgements; its lines must be like: query.jpg 0 item.jpg 2")
    return found


def _judgement(fields: Sequence[str], where: str) -> Judgement:
    if len(fields) != 4:
        raise TophitError(
            f"{where}: expected four fields without blanks in them, query 0 item grade, got {len(fields)}."
        )
    try:
        grade = float(fields[3])
    except ValueError:
        grade = float("nan")
    if not abs(grade) < float("inf"):
        raise TophitError(f"{where}: the grade must be a number, not '{fields[3]}'.")
    return Judgement(fields[0], fields[2], max(0.0, grade))


def names_of_images(rows: Sequence[ImageRow], source: str) -> list[str]:
    """Return what judgements call images: their column ``id`` or, without one, the path below the manifest's folder.

    ``source`` is the manifest that the rows come from.
    """
    if rows and all(str(row.metadata.get("id") or "") for row in rows):
        return [str(row.metadata["id"]) for row in rows]
    root = Path(source).absolute()
    root = root if root.is_dir() else root.parent
    paths = [row.path.absolute() for row in rows]
    return [path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path) for path in paths]


def judgements_of(manifest: Manifest, path: str | Path) -> list[Judgement]:
    """Read the judgements of a manifest's images; one that names another image is an error."""
    known = set(names_of_images(manifest.rows, manifest.source))
    found = read_judgements(path)
    for number, each in enumerate(found, 1):
        for name in each[:2]:
            if name not in known:
                example = min(known, default="")
                raise TophitError(
                    f"{path}, judgement {number}: '{name}' is none of the {len(known)} images of {manifest.source}. "
                    f"They are called like '{example}': the column id or, without one, the path below the manifest."
                )
    return found
