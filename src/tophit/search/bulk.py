"""Bulk load of what ``tophit embed`` wrote: Parquet parts into an index, part by part, resumed where it stopped."""

import json
from pathlib import Path
from typing import Any

from tophit.embedding.vector_parts import EmbeddedPart, part_files, read_finished_description, read_part
from tophit.errors import UsageError
from tophit.files import write_text
from tophit.progress import Progress
from tophit.search.index import Index
from tophit.search.plain_values import stored_value

_ROWS = 2048  # written at a time


def load_embedded(index: Index, folder: str | Path, done_file: str | Path, progress: Progress | None = None) -> int:
    """Upsert every part of a folder that ``done_file`` does not name yet, and return how many rows were written.

    A part is noted as done once its rows are durable, so an interruption costs one part, which is written again. A
    part that was written anew since, by size and time, is loaded again. Vectors of another embedder are refused.
    """
    folder, done_file = Path(folder), Path(done_file)
    described = read_finished_description(folder)
    if described["fingerprint"] != index.fingerprint:
        raise UsageError(
            f"The vectors in {folder} were made by another embedder ({described['fingerprint']}) than this index "
            f"({index.fingerprint})."
        )
    if described["dim"] != index.dim:
        raise UsageError(f"The vectors in {folder} have {described['dim']} numbers, those of the index {index.dim}.")
    done = json.loads(done_file.read_text(encoding="utf-8")) if done_file.is_file() else {}
    waiting = [path for path in part_files(folder) if done.get(str(path.absolute())) != _state(path)]
    written = 0
    for path in progress(waiting, len(waiting)) if progress else waiting:
        part = read_part(path, index.dim)
        metadata = [_metadata(part, row) for row in range(len(part.ids))]
        for start in range(0, len(part.ids), _ROWS):
            rows = slice(start, start + _ROWS)
            index.upsert(part.ids[rows], part.vectors[rows], metadata[rows])
        written += len(part.ids)
        done[str(path.absolute())] = _state(path)
        write_text(done_file, json.dumps(done, indent=2) + "\n")
    return written


def _state(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


def _metadata(part: EmbeddedPart, row: int) -> dict[str, Any]:
    """Return what an index keeps of a row, by the same rule as of a manifest's row."""
    read = {name: stored_value(value) for name, value in part.metadata[row].items()}
    plain = {name: value for name, value in read.items() if value is not None}
    return {**plain, "path": part.paths[row], "label": part.labels[row], "split": part.splits[row]}
