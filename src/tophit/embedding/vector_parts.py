"""Vectors on disk: a folder of Parquet parts, each written atomically, and ``embedding.json`` about their origin.

``part-RRRR-NNNNN.parquet`` is part NNNNN of process RRRR. Its columns: id, path, label, split, metadata
(JSON) and vector. The reasons for images that could not be read are in the file's own metadata.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tophit.data.item_rows import item_id, level_fields
from tophit.data.manifest import ImageRow
from tophit.errors import TophitError, UsageError
from tophit.files import check_folder, replace_file

FORMAT = 1
DESCRIPTION = "embedding.json"
_BAD = b"tophit.bad"


@dataclass(frozen=True)
class EmbeddedPart:
    """Images and their unit vectors (n, dim), float32."""

    ids: list[str]
    paths: list[str]
    labels: list[str]
    splits: list[str]
    metadata: list[dict[str, Any]]
    vectors: np.ndarray


def part_path(folder: Path, rank: int, number: int) -> Path:
    """Return the path of part ``number`` of process ``rank``."""
    return folder / f"part-{rank:04d}-{number:05d}.parquet"


_FILES = (".npz", ".npy", ".parquet", ".csv", ".json")


def check_parts_folder(folder: Path) -> None:
    """Raise, before any work is done, if vectors can't be written to a folder, or its name is that of a file."""
    if folder.suffix.lower() in _FILES and not folder.is_dir():
        raise UsageError(
            f"--out: vectors are written to a folder of Parquet parts, not to a file: --out {folder.with_suffix('')}"
        )
    check_folder(folder, "--out")


def write_part(path: Path, rows: Sequence[ImageRow], vectors: np.ndarray, bad: dict[int, str]) -> None:
    """Write the readable rows with their vectors (n, dim), and the reasons for the others by row number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = pa.array(np.ascontiguousarray(vectors, np.float32).reshape(-1), pa.float32())
    columns = {
        "id": pa.array([item_id(row) for row in rows], pa.string()),
        "path": pa.array([str(row.path.absolute()) for row in rows], pa.string()),
        "label": pa.array([row.label for row in rows], pa.string()),
        "split": pa.array([row.split for row in rows], pa.string()),
        "metadata": pa.array([_metadata(row) for row in rows], pa.string()),
        "vector": pa.FixedSizeListArray.from_arrays(values, vectors.shape[1]),
    }
    table = pa.table(columns).replace_schema_metadata({_BAD: json.dumps(bad).encode()})
    with replace_file(path) as temporary:
        pq.write_table(table, temporary)


def _metadata(row: ImageRow) -> str:
    """Return the columns of a row that the format has no column for, its branches and its box, as JSON."""
    box = {} if row.box is None else {"box": list(row.box)}
    return json.dumps({**row.metadata, **level_fields(row), **box}, ensure_ascii=False, default=str)


def read_description(folder: str | Path) -> dict[str, Any]:
    """Return ``embedding.json`` of a folder: fingerprint, dim, count_of_rows, model, preprocessing, and more."""
    path = Path(folder) / DESCRIPTION
    if not path.is_file():
        raise UsageError(f"There are no vectors in {folder} (no {DESCRIPTION} there); make them with: tophit embed")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if fields["format"] != FORMAT:
            raise TophitError(f"{path} has format {fields['format']}; this version of Tophit reads {FORMAT}.")
        _ = fields["fingerprint"], fields["dim"], fields["count_of_rows"]
    except (ValueError, KeyError, TypeError) as error:
        raise TophitError(f"{path} does not describe vectors: {error!r}.") from error
    return fields


def read_finished_description(folder: str | Path) -> dict[str, Any]:
    """Return ``embedding.json`` of a folder, after checking by the number of rows that all parts are there."""
    fields = read_description(folder)
    if not fields.get("complete", True):
        raise TophitError(
            f"The vectors in {folder} are not complete; run the same 'tophit embed' again to finish them."
        )
    count = sum(part_summary(path)[0] for path in part_files(folder))
    if count != fields["count_of_rows"]:
        raise TophitError(f"{folder} is damaged: expected {fields['count_of_rows']} vectors, found {count}.")
    return fields


def read_parts(folder: str | Path) -> Iterator[EmbeddedPart]:
    """Yield the parts of a finished folder, one file at a time, in the order of their names."""
    fields = read_finished_description(folder)
    for path in part_files(folder):
        yield read_part(path, fields["dim"])


def part_files(folder: str | Path) -> list[Path]:
    """Return the parts in a folder."""
    return sorted(Path(folder).glob("part-*.parquet"))


def part_paths(folder: str | Path) -> Iterator[str]:
    """Yield the paths of all images of a finished folder, without reading their vectors."""
    import pyarrow.parquet as pq

    for path in part_files(folder):
        yield from pq.read_table(path, columns=["path"])["path"].to_pylist()


def part_summary(path: Path) -> tuple[int, dict[int, str]]:
    """Return the number of vectors in a part, and by row number the reasons for the images without one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.read_metadata(path)
    except pa.ArrowInvalid as error:
        raise TophitError(f"{path} is damaged: {error}.") from error
    bad = json.loads((file.metadata or {}).get(_BAD, b"{}"))
    return file.num_rows, {int(row): reason for row, reason in bad.items()}


def read_part(path: Path, dim: int) -> EmbeddedPart:
    """Return the content of a part; ``dim`` is the length of its vectors."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        vectors = table["vector"].combine_chunks()
        if vectors.type.list_size != dim:
            raise ValueError(f"vectors of {vectors.type.list_size} numbers, not {dim}")
        names = ("id", "path", "label", "split")
        ids, paths, labels, splits = (table[name].to_pylist() for name in names)
        metadata = [json.loads(text) for text in table["metadata"].to_pylist()]
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise TophitError(f"{path} is damaged: {error}.") from error
    flat = vectors.flatten().to_numpy(zero_copy_only=False)
    return EmbeddedPart(ids, paths, labels, splits, metadata, flat.reshape(-1, dim).astype(np.float32, copy=False))
