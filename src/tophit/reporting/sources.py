"""What a report is made of, as a digest: while that stays the same, the page need not be made again.

Nothing here imports torch, so the command answers at once.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from html import escape, unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tophit import __version__
from tophit.data.feature_files import feature_file_of
from tophit.data.manifest import FEATURE_FILE, ImageRow
from tophit.models.named import embedder_folder
from tophit.reporting.written import Written
from tophit.training.run import Run, data_of_run

_DRAWN_BY = ("matplotlib", "openTSNE")  # without them the page has less
_HEAD = 4096  # characters of a page that hold what it says of itself
_SAID = re.compile(r'<meta name="(description|tophit-sources)" content="([^"]*)" />')


def digest_of_sources(folder: Path, against: str | None, data: str | None) -> str:
    """Return a digest of all that the page of a run shows: the run, the other model, the images, and what draws it.

    Files count by name, size and time of their last change; how a path is spelled does not count.
    """
    folder = folder.resolve()
    rows = _plainly_spelled(data_of_run(str(folder), data))
    other = against if against is None or embedder_folder(against) is None else str(Path(against).resolve())
    drawn_by = [bool(find_spec(name)) for name in _DRAWN_BY]
    digest = hashlib.sha256(repr((__version__, other, drawn_by)).encode())
    models = [folder, *([] if other is None else [Path(other)])]
    images = (row.path for row in rows) if feature_file_of(rows) is None else (Path(feature_file_of(rows) or ""),)
    for path in (*(path for model in models for path in _files_of(model)), *images):
        digest.update(_facts(path))
    for row in rows:
        digest.update(repr(row).encode())
    return digest.hexdigest()


def said_of_itself(verdict: str, digest: str) -> str:
    """Return the lines of a page's head that say what it shows and, unless the digest is empty, what it is made of."""
    lines = {"description": verdict} | ({"tophit-sources": digest} if digest else {})
    return "".join(f'<meta name="{name}" content="{escape(text)}" />\n' for name, text in lines.items())


def unchanged(page: Path, folder: Path, against: str | None, data: str | None) -> Written | None:
    """Return what an earlier report wrote, if the page is there and made of the same; else None."""
    listed = page.with_name(f"{page.stem}_label_problems.csv")
    if not page.is_file() or not listed.is_file():
        return None
    with page.open(encoding="utf-8", errors="replace") as file:
        said = dict(_SAID.findall(file.read(_HEAD)))
    digest = said.get("tophit-sources")
    if not digest or digest != digest_of_sources(folder, against, data):
        return None
    return Written(page, unescape(said.get("description", "")), listed, [], is_new=False)


def _plainly_spelled(rows: Iterable[ImageRow]) -> list[ImageRow]:
    """Return rows whose paths lie in resolved folders; each folder is looked up once."""
    resolved = cache(os.path.realpath)

    def plain(path: str | Path) -> Path:
        return Path(resolved(os.path.dirname(path)), os.path.basename(path))

    def own(metadata: dict[str, Any]) -> dict[str, Any]:
        file = metadata.get(FEATURE_FILE)
        return metadata if file is None else {**metadata, FEATURE_FILE: str(plain(file))}

    return [replace(row, path=plain(row.path), metadata=own(row.metadata)) for row in rows]


def _files_of(model: Path) -> Iterator[Path]:
    """Yield the files of a run or an embedder that a page depends on; none for a backbone's name."""
    run = Run(model)
    held = embedder_folder(model)
    yield from (run.recipe_path, run.folder / "result.json", run.log_path)
    if held is not None:
        yield from sorted(path for path in held.rglob("*") if path.is_file())


def _facts(path: Path) -> bytes:
    try:
        found = path.stat()
    except OSError:
        return f"{path}: missing".encode()
    return f"{path}: {found.st_size} {found.st_mtime_ns}".encode()
