"""Embed many images into a folder of parts: an interruption loses at most one part, and processes share the work.

The rows are cut into blocks; block b is part number b // world of process b % world. Processes need not communicate:
what they must agree on is in ``embedding.json``, which the first of them writes.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tophit.data.item_rows import item_id
from tophit.data.manifest import ImageRow
from tophit.embedding.vector_parts import (
    DESCRIPTION,
    FORMAT,
    part_files,
    part_path,
    part_summary,
    read_description,
    write_part,
)
from tophit.errors import TophitError, UsageError
from tophit.files import create_text, write_json
from tophit.models.embedder import Embedder
from tophit.models.feature_cache import features_by_block
from tophit.models.runtimes import Runtime, build_runtime, choose_runtime
from tophit.progress import Progress

ROWS_A_PART = 2048


@dataclass(frozen=True)
class EmbeddedFolder:
    """What a folder holds now: vectors, the reason for each row without one, and whether all parts are there."""

    count: int
    bad: dict[int, str]
    complete: bool
    runtime: str


def embed_to_folder(
    embedder: Embedder,
    rows: Sequence[ImageRow],
    folder: str | Path,
    *,
    model: str = "",
    runtime: str | None = None,
    precision: str = "fp32",
    batch: int = 64,
    workers: int = 0,
    rows_a_part: int = ROWS_A_PART,
    rank: int = 0,
    world: int = 1,
    progress: Progress | None = None,
) -> EmbeddedFolder:
    """Write the unit vectors of rows as parts, skipping existing ones; process ``rank`` of ``world`` does its share.

    It is an error if the folder was begun with other images, another embedder or other settings.
    """
    folder = Path(folder)
    runner, plan = begin(embedder, rows, folder, model, runtime, precision, batch, rows_a_part, world)
    parts = planned_parts(folder, len(rows), rows_a_part, world)
    todo = [(path, some) for path, some in parts[rank::world] if not path.is_file()]
    for path, vectors, good, bad in _embed(embedder, runner, rows, todo, batch, workers, progress):
        write_part(path, [rows[i] for i in good], vectors, bad)
    return finish(folder, plan, [path for path, _ in parts], runner.name)


def planned_parts(folder: Path, count: int, rows_a_part: int, world: int) -> list[tuple[Path, range]]:
    """Return the path of every part and the numbers of its rows."""
    starts = range(0, count, rows_a_part)
    return [
        (part_path(folder, number % world, number // world), range(start, min(count, start + rows_a_part)))
        for number, start in enumerate(starts)
    ]


def write_vectors(
    embedder: Embedder, runtime: Runtime, rows: Sequence[ImageRow], first: int, path: Path, batch: int
) -> None:
    """Write one part: the vectors of ``rows``, of which the first is row number ``first`` of the whole list."""
    for _, vectors, good, bad in _embed(embedder, runtime, rows, [(path, range(len(rows)))], batch, 0, None):
        write_part(path, [rows[i] for i in good], vectors, {first + i: reason for i, reason in bad.items()})


def begin(
    embedder: Embedder,
    rows: Sequence[ImageRow],
    folder: Path,
    model: str,
    runtime: str | None,
    precision: str,
    batch: int,
    rows_a_part: int,
    world: int,
) -> tuple[Runtime, dict[str, Any]]:
    """Return the runtime and the description, from an earlier start if there was one; it is written if not."""
    path = folder / DESCRIPTION
    if not path.is_file() and folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds other files; use an empty or new folder for the vectors.")
    fixed = {
        "fingerprint": embedder.fingerprint(),
        "precision": precision,
        "batch": batch,
        "rows_a_part": rows_a_part,
        "processes": world,
        "rows_digest": _digest(rows),
    }
    if path.is_file():
        before = read_description(folder)
        runner = build_runtime(runtime or before.get("engine", "torch"), embedder, precision)
    else:
        runner = choose_runtime(embedder, len(rows), batch, runtime, precision)
        begun = {
            "format": FORMAT,
            "dim": embedder.dim,
            "count_of_rows": len(rows),
            "model": model,
            "preprocessing": embedder.preprocessing.to_json(),
            "engine": runner.name.removesuffix("-bf16"),
            **fixed,
            "complete": False,
        }
        folder.mkdir(parents=True, exist_ok=True)
        if create_text(path, json.dumps(begun, indent=2) + "\n"):
            return runner, begun
        before = read_description(folder)  # another process wrote it first
        runner = build_runtime(before["engine"], embedder, precision)
    fixed["engine"] = runner.name.removesuffix("-bf16")
    for name, value in fixed.items():
        if before.get(name) != value:
            raise UsageError(
                f"The vectors in {folder} were begun with another {_WORDS.get(name, name)} ({before.get(name)}, now "
                f"{value}); use the same, or another folder."
            )
    return runner, before


_WORDS = {
    "engine": "runtime",
    "fingerprint": "model",
    "rows_digest": "list of images",
    "processes": "number of processes",
    "rows_a_part": "--part",
}


def _digest(rows: Sequence[ImageRow]) -> str:
    """Return a digest of the rows; two rows with the same id are an error."""
    ids: set[str] = set()
    summary = hashlib.sha256()
    for row in rows:
        name = item_id(row)
        if name in ids:
            raise TophitError(f"The image {name} is listed twice; each image (and box) may appear only once.")
        ids.add(name)
        summary.update(repr((name, row.label, row.split)).encode())
    return summary.hexdigest()[:32]


def _embed(
    embedder: Embedder,
    runtime: Runtime,
    rows: Sequence[ImageRow],
    todo: Sequence[tuple[Path, range]],
    batch: int,
    workers: int,
    progress: Progress | None,
) -> Iterator[tuple[Path, np.ndarray, list[int], dict[int, str]]]:
    """Yield each part's path, its vectors, the rows they belong to, and the reasons for the rows without one."""
    blocks = [block for _, block in todo]
    found = features_by_block(runtime, embedder, rows, blocks, batch, workers, progress)
    for (path, _), features in zip(todo, found, strict=True):
        yield path, embedder.embed_arrays(features.values), features.rows, features.bad


def finish(folder: Path, plan: dict[str, Any], paths: Sequence[Path], runtime: str) -> EmbeddedFolder:
    """Return what the folder holds; the description says so if all parts are there."""
    there = set(part_files(folder)) & set(paths)
    summaries = [part_summary(path) for path in sorted(there)]
    count = sum(number for number, _ in summaries)
    bad = {row: reason for _, reasons in summaries for row, reason in reasons.items()}
    complete = len(there) == len(paths)
    if complete and not (plan["complete"] and plan["count_of_rows"] == count):
        write_json(folder / DESCRIPTION, plan | {"count_of_rows": count, "complete": True})
    return EmbeddedFolder(count, dict(sorted(bad.items())), complete, runtime)
