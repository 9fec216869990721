"""Items: what an index keeps of a manifest row, and how the row is read back.

An item has an id and metadata: ``path``, ``label``, ``split``, the ``box`` if the row has one, and every other column
of the manifest. If the label is a path such as ``animal/bird/finch``, ``level1`` is ``animal`` and ``level2`` is
``animal/bird``, so that a search can be narrowed to a branch; where images have several labels, ``label_kind`` says so
and ``labels`` lists them. :func:`to_item` and :func:`to_row` are the only places that know this.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tophit.data.label_kinds import SEPARATORS, label_text
from tophit.data.manifest import FEATURE_FILE, FEATURE_ROW, ImageRow
from tophit.errors import TophitError
from tophit.images.decode import Box

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?")
_OWN = ("path", "label", "split", "box")
LABEL_KIND = "label_kind"
"""Metadata of an item with several labels: that its label is these, separated by semicolons."""
LABELS = "labels"
"""Metadata of an item with several labels: a list of them. A filter compares each."""
_LEVEL = re.compile(r"level[1-9][0-9]*")


def to_item(row: ImageRow) -> tuple[str, dict[str, Any]]:
    """Return the id and the metadata of a row's item.

    >>> to_item(ImageRow(Path("/a.jpg"), "cat", box=(0, 0, 8, 8), metadata={"price": "12", "note": ""}))
    ('/a.jpg#0,0,8,8', {'price': 12, 'path': '/a.jpg', 'label': 'cat', 'split': 'test', 'box': [0, 0, 8, 8]})
    """
    read = {name: stored_value(value) for name, value in row.metadata.items()}
    metadata = {name: value for name, value in read.items() if value is not None}
    metadata |= {"path": str(row.path.absolute()), "label": row.label, "split": row.split, **level_fields(row)}
    if row.kind == "several":
        metadata |= {LABEL_KIND: row.kind, LABELS: list(row.names)}
    return item_id(row), metadata if row.box is None else {**metadata, "box": list(row.box)}


def level_fields(row: ImageRow) -> dict[str, str]:
    """Return the branches above a path's leaf, each by the names down to it."""
    branches = range(1, len(row.names)) if row.kind == "path" else ()
    return {f"level{number}": label_text(row.names[:number], "path") for number in branches}


def listed_labels(metadata: Mapping[str, Any]) -> list[str]:
    """Return the labels of an item that has several; none for other items."""
    labels = metadata.get(LABELS)
    return [str(each) for each in labels] if LABEL_KIND in metadata and isinstance(labels, list) else []


def is_level(field: str) -> bool:
    """Say whether a field holds a branch of a hierarchy, which is text even where it looks like a number."""
    return _LEVEL.fullmatch(field) is not None


def to_row(name: str, metadata: Mapping[str, Any]) -> ImageRow:
    """Return the row of the item with this id; an item without a path has none.

    >>> to_row("/a.jpg#0,0,8,8", {"price": 12, "path": "/a.jpg", "label": "cat", "box": [0, 0, 8, 8]}).box
    (0.0, 0.0, 8.0, 8.0)
    """
    path = metadata.get("path")
    if not path:
        raise TophitError(f"The item '{name}' has no path in its metadata, so its image can't be read.")
    box = as_box(metadata.get("box"))
    own = ("path", "label", "split") if box is None else _OWN
    if box is None and FEATURE_ROW not in metadata and name.startswith(f"{path}#"):
        box = as_box(name.removeprefix(f"{path}#").split(","))  # older parts of tophit embed have it only there
    label, several = str(metadata.get("label", "")), metadata.get(LABEL_KIND) == "several"
    own += (LABEL_KIND, LABELS) if several else ()
    rest = {key: value for key, value in metadata.items() if key not in own}
    row = ImageRow(Path(path), label, str(metadata.get("split", "test")), box=box, metadata=rest)
    return replace(row, kind="several", names=tuple(label.split(SEPARATORS["several"]))) if several else row


def item_id(row: ImageRow) -> str:
    """Return the id of a row's item: its absolute path, with its box if it has one.

    A row of a feature file is identified by its name and number, because names may repeat.
    """
    path = str(row.path.absolute())
    if FEATURE_FILE in row.metadata and FEATURE_ROW in row.metadata:
        return f"{path}#{row.metadata[FEATURE_ROW]}"
    return path if row.box is None else f"{path}#{','.join(f'{value:g}' for value in row.box)}"


def deepest_folder(folders: Iterable[str]) -> str | None:
    """Return the deepest folder that holds all of some absolute ones; None for none.

    >>> deepest_folder(["/a/b/c", "/a/b/d", "/a/b"])
    '/a/b'
    """
    different = set(folders)
    return os.path.commonpath(different) if different else None


def stored_value(value: Any) -> Any:
    """Return a manifest's value as an index stores it: text that reads as a number becomes one, empty becomes None."""
    if isinstance(value, str):
        return number_or_text(value) if value else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def number_or_text(text: str) -> int | float | str:
    """Return the number that a text reads as, such as 10 or 2.5; any other text, such as 007, stays text."""
    match = _NUMBER.fullmatch(text)
    if not match:
        return text
    return float(text) if match.group(2) else int(text)


def as_box(values: Any) -> Box | None:
    """Return four numbers as a box; None for anything else, such as a manifest's own column of that name."""
    try:
        x1, y1, x2, y2 = (float(value) for value in values)
    except (TypeError, ValueError):
        return None
    return x1, y1, x2, y2
