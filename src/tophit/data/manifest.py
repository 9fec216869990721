"""The manifest: a table with one row per image, as CSV or Parquet.

Columns: ``path`` and ``label`` (or ``labels``, or ``label_path``: see ``label_kinds``); optional ``split`` (train,
validation, test), ``role`` (query, gallery, both) and a box ``x1 y1 x2 y2`` in pixels. Every other column is metadata
and is kept as it is.
"""

import csv
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tophit.data.label_kinds import (
    LABEL_COLUMNS,
    SEPARATORS,
    LabelKind,
    check_depths,
    kind_of_columns,
    label_text,
    read_names,
)
from tophit.errors import TophitError, UsageError
from tophit.files import replace_file
from tophit.images.decode import Box

SPLITS = ("train", "validation", "test")
ROLES = ("query", "gallery", "both")
FEATURE_FILE, FEATURE_ROW = "feature_file", "feature_row"
"""Metadata of a row that stands for a feature in a feature file: the file, and the feature's number in it."""
_BOX = ("x1", "y1", "x2", "y2")
_KNOWN = ("path", "split", "role", *_BOX)


@dataclass(frozen=True, slots=True)
class ImageRow:
    """One image: where it is, what it shows, and what it is used for.

    ``kind`` says what its label is. ``names`` are the labels of an image with several, or the levels of a path from the
    coarsest to the finest; ``label`` is then their text. With one label there are no ``names``.
    """

    path: Path
    label: str
    split: str = "test"
    role: str = "both"
    box: Box | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    kind: LabelKind = "one"
    names: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes it belongs to: its labels if it has several, else its one label."""
        return self.names if self.kind == "several" else (self.label,)


@dataclass(frozen=True)
class Manifest:
    """A list of image rows; ``source`` is where it came from, for messages.

    A part of a manifest keeps in ``numbers`` the row numbers (from 1) that its rows have in the whole manifest.
    ``left_out`` is a sentence on the files of a folder that are no rows, by count and kind; empty if there are none.
    """

    rows: tuple[ImageRow, ...]
    source: str = "manifest"
    numbers: tuple[int, ...] | None = None
    left_out: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ImageRow]:
        return iter(self.rows)

    @property
    def labels(self) -> list[str]:
        """The label of every row."""
        return [row.label for row in self.rows]

    @property
    def kind(self) -> LabelKind:
        """What the labels are: one, several, or a path."""
        return self.rows[0].kind if self.rows else "one"

    def where(self, split: str) -> "Manifest":
        """Return the rows of one split."""
        chosen = [i for i, row in enumerate(self.rows) if row.split == split]
        rows, numbers = tuple(self.rows[i] for i in chosen), tuple(self.number(i) for i in chosen)
        return replace(self, rows=rows, numbers=numbers)

    def number(self, index: int) -> int:
        """Return the number, from 1, that a row has in the whole manifest."""
        return index + 1 if self.numbers is None else self.numbers[index]


def read_manifest(path: str | Path) -> Manifest:
    """Read a manifest from a CSV or Parquet file; image paths may be relative to the file's folder."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"There is no manifest at {path}.")
    columns, records = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    kind = kind_of_columns(columns)
    missing = ["path"] * ("path" not in columns) + ["label"] * (kind is None)
    if missing or kind is None:
        raise TophitError(
            f"{path}: no column {' and no column '.join(repr(name) for name in missing)}; "
            f"it has {', '.join(columns) or 'no columns'} (a CSV's columns are separated by commas)."
        )
    places = [f"{path}, row {number}" for number in range(1, len(records) + 1)]
    rows = tuple(_row_from_record(each, kind, path.parent, where) for each, where in zip(records, places, strict=True))
    if not rows:
        raise TophitError(f"{path}: the manifest has no rows.")
    if kind == "path":
        check_depths([row.names for row in rows], places)
    return Manifest(rows, str(path))


def write_manifest(manifest: Manifest, path: str | Path) -> None:
    """Write a manifest as CSV or Parquet, atomically; images below the file's folder get relative paths."""
    path = Path(path)
    columns, records = _to_records(manifest.rows, path.resolve().parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as temporary:
        if path.suffix == ".parquet":
            _write_parquet(temporary, columns, records)
        elif path.suffix == ".csv":
            with temporary.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns)
                writer.writeheader()
                writer.writerows(records)
        else:
            raise UsageError(f"A manifest's name must end in .csv or .parquet, not '{path.name}'.")


def _read_csv(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            records = list(reader)
            columns = list(reader.fieldnames or [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise TophitError(f"{path} is not a CSV file in UTF-8: {error}.") from error
    for number, record in enumerate(records, 1):
        if None in record or None in record.values():
            raise TophitError(f"{path}, row {number}: expected {len(columns)} fields.")
    return columns, records


def _read_parquet(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise TophitError(f"{path} is not a Parquet file: {error}.") from error
    return table.column_names, table.to_pylist()


def _write_parquet(path: Path, columns: Sequence[str], records: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: [record[name] for record in records] for name in columns})
    pq.write_table(table, path)


def _row_from_record(record: dict[str, Any], kind: LabelKind, root: Path, where: str) -> ImageRow:
    column = LABEL_COLUMNS[kind]
    if record["path"] in (None, "") or record[column] in (None, ""):
        raise TophitError(f"{where}: path and {column} must not be empty.")
    names = read_names(record[column], kind, where)
    return ImageRow(
        path=root / str(record["path"]),
        label=label_text(names, kind) if names else str(record[column]),
        split=_one_of(record.get("split"), SPLITS, "test", f"{where}: split"),
        role=_one_of(record.get("role"), ROLES, "both", f"{where}: role"),
        box=_box_from_record(record, where),
        metadata={name: value for name, value in record.items() if name not in (*_KNOWN, column)},
        kind=kind,
        names=names,
    )


def _one_of(value: Any, choices: Sequence[str], default: str, where: str) -> str:
    if value in (None, ""):
        return default
    if value not in choices:
        near = difflib.get_close_matches(str(value), choices, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise TophitError(f"{where} is '{value}'; it must be one of {', '.join(choices)}.{hint}")
    return str(value)


def _box_from_record(record: dict[str, Any], where: str) -> Box | None:
    values = [record.get(name) for name in _BOX]
    if all(value in (None, "") for value in values):
        return None
    try:
        x1, y1, x2, y2 = (float(value) for value in values)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TophitError(f"{where}: the box needs four numbers x1 y1 x2 y2, got {values}.") from None
    if not (0 <= x1 < x2 and 0 <= y1 < y2):
        raise TophitError(f"{where}: the box {x1, y1, x2, y2} must have 0 <= x1 < x2 and 0 <= y1 < y2.")
    return x1, y1, x2, y2


def _to_records(rows: Sequence[ImageRow], root: Path) -> tuple[list[str], list[dict[str, Any]]]:
    kind: LabelKind = rows[0].kind if rows else "one"
    if other := next((row.kind for row in rows if row.kind != kind), None):
        raise UsageError(f"A manifest can't mix rows whose labels are '{kind}' and '{other}'.")
    columns = ["path", LABEL_COLUMNS[kind], "split"]
    if any(row.role != "both" for row in rows):
        columns.append("role")
    if any(row.box for row in rows):
        columns.extend(_BOX)
    columns.extend(dict.fromkeys(name for row in rows for name in row.metadata))
    return columns, [_record(row, columns, root) for row in rows]


def _record(row: ImageRow, columns: Sequence[str], root: Path) -> dict[str, Any]:
    path, mark = row.path.absolute(), SEPARATORS.get(row.kind)
    if mark and any(mark in name for name in row.names):
        raise UsageError(f"{row.path}: a name in '{row.label}' holds '{mark}', which separates names in a manifest.")
    values: dict[str, Any] = {
        "path": path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path),
        LABEL_COLUMNS[row.kind]: row.label,
        "split": row.split,
        "role": row.role,
        **dict(zip(_BOX, row.box or (None,) * 4, strict=True)),
        **row.metadata,
    }
    return {name: values.get(name) for name in columns}
