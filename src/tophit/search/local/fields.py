"""What filters compare of an item's metadata: the fields that hold truth values, numbers or texts."""

from collections.abc import Iterator
from typing import Any

from tophit.data.item_rows import LABELS, listed_labels

_KINDS = {bool: 0, int: 1, float: 1, str: 2}
"""Values are compared within a kind only: true is not 1, and 1 is not the text '1'."""


def kind_of(value: Any) -> int | None:
    """Return the kind of a value that filters compare: boolean, number or text; None for others."""
    return _KINDS.get(type(value))


def field_rows(items: Any) -> Iterator[tuple[str, int, Any, int]]:
    """Iterate over what filters compare of items, given as key and metadata: field, kind, value, key."""
    for key, metadata in items:
        for field, value in metadata.items():
            kind = kind_of(value)
            if kind is not None:
                yield field, kind, value, key
        for label in dict.fromkeys(listed_labels(metadata)):
            yield LABELS, _KINDS[str], label, key
