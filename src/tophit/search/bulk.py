"""Bulk load of what ``tophit embed`` wrote: Parquet parts into an index, part by part, resumed where it stopped."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tophit.errors import TophitError, UsageError
from tophit.files import write_text
from tophit.progress import Progress
from tophit.search.index import Index
from tophit.search.plain_values import stored_value

_DESCRIPTION = "embedding.json"
_FORMAT = 1
_ROWS = 2048  # written at a time


def read_embedding(folder: str | Path) -> dict[str, Any]:
    """Return what ``embedding.json`` says: fingerprint, dim, count_of_rows."""
    path = Path(folder) / _DESCRIPTION
    if not path.is_file():
        raise TophitError(f"There are no embeddings in {folder} (no {_DESCRIPTION}); make them with: tophit embed")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        version, _ = fields["format"], (fields["fingerprint"], fields["dim"], fields["count_of_rows"])
    except (ValueError, KeyError, TypeError) as error:
        raise TophitError(f"{path} is damaged: {error!r}.") from error
    if version != _FORMAT:
        raise TophitError(f"{path} has format {version}; this version of Tophit reads {_FORMAT}.")
    if not fields.get("complete", True):
        raise TophitError(f"The vectors in {folder} are not all there yet; finish them with the same tophit embed.")
    return fields


def load_embedded(index: Index, folder: str | Path, done_file: str | Path, progress: Progress | None = None) -> int:
    """Upsert every part of a folder that ``done_file`` does not name yet, and return how many rows were written.

    A part is noted as done once its rows are durable, so an interruption costs one part, which is written again. A
    part that was written anew since, by size and time, is loaded again. Vectors of another embedder are refused.
    """
    folder, done_file = Path(folder), Path(done_file)
    described = read_embedding(folder)
    if described["fingerprint"] != index.fingerprint:
        raise UsageError(
            f"The vectors in {folder} were made by another embedder ({described['fingerprint']}) than this index "
            f"({index.fingerprint})."
        )
    if described["dim"] != index.dim:
        raise UsageError(f"The vectors in {folder} have {described['dim']} numbers, those of the index {index.dim}.")
    parts = sorted(folder.glob("part-*.parquet"))
    found = sum(_rows_in(path) for path in parts)
    if found != described["count_of_rows"]:
        raise TophitError(f"{folder} should hold {described['count_of_rows']} rows, its parts have {found}.")
    done = json.loads(done_file.read_text(encoding="utf-8")) if done_file.is_file() else {}
    waiting = [path for path in parts if done.get(str(path.absolute())) != _state(path)]
    written = 0
    for path in _tracked(waiting, progress):
        for ids, vectors, metadata in _read_part(path):
            index.upsert(ids, vectors, metadata)
            written += len(ids)
        done[str(path.absolute())] = _state(path)
        write_text(done_file, json.dumps(done, indent=2) + "\n")
    return written


def _tracked(paths: Sequence[Path], progress: Progress | None) -> Iterable[Path]:
    return progress(paths, len(paths)) if progress else paths


def _state(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


def _rows_in(path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path).metadata.num_rows
    except pa.ArrowInvalid as error:
        raise TophitError(f"{path} is damaged: {error}.") from error


def _metadata(row: dict[str, str]) -> dict[str, Any]:
    """Return what an index keeps of a row, by the same rule as of a manifest's row."""
    read = {name: stored_value(value) for name, value in json.loads(row["metadata"] or "{}").items()}
    plain = {name: value for name, value in read.items() if value is not None}
    return {**plain, "path": row["path"], "label": row["label"], "split": row["split"]}


def _read_part(path: Path) -> Iterator[tuple[list[str], np.ndarray, list[dict[str, Any]]]]:
    """Yield ids, vectors (n, dim) and metadata of a part's rows, some at a time; path, label and split are metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(path).iter_batches(_ROWS):
            rows = batch.num_rows
            vectors = batch.column("vector").flatten().to_numpy(zero_copy_only=False).reshape(rows, -1)
            columns = {name: batch.column(name).to_pylist() for name in ("id", "path", "label", "split", "metadata")}
            metadata = [_metadata({name: values[i] for name, values in columns.items()}) for i in range(rows)]
            yield columns["id"], vectors, metadata
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise TophitError(f"{path} is damaged: {error}.") from error
