"""What an index holds, learned in one pass: fields to filter by, the folder of its images, a sample of items."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tophit.search.backend import Item
from tophit.serve.requests import RESERVED

_MOST_VALUES = 1000  # of a field, that a page offers to choose from
_MOST_FIELDS = 64
_SAMPLE = 48


@dataclass
class FieldFacts:
    """The values of a metadata field: texts with how often they occur, or the range of numbers."""

    name: str
    count: int = 0
    least: float | None = None
    most: float | None = None
    values: Counter[Any] = field(default_factory=Counter)
    cut: bool = False

    def add(self, value: Any) -> None:
        """Count a value."""
        self.count += 1
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.least = value if self.least is None else min(self.least, value)
            self.most = value if self.most is None else max(self.most, value)
        if value in self.values or len(self.values) < _MOST_VALUES:
            self.values[value] += 1
        else:
            self.cut = True

    def plain(self) -> dict[str, Any]:
        """Return the facts as JSON: the values in order of name."""
        values = sorted(self.values.items(), key=lambda pair: (str(type(pair[0])), pair[0]))
        return {
            "name": self.name,
            "count": self.count,
            "least": self.least,
            "most": self.most,
            "values": [{"value": value, "count": count} for value, count in values],
            "complete": not self.cut,
        }


@dataclass
class Survey:
    """Fields by name, the deepest folder that holds all images (None without any), ids spread over the index."""

    count: int
    fields: dict[str, FieldFacts]
    root: Path | None
    sample: list[str]


def survey(items: Iterable[Item], count: int) -> Survey:
    """Go through all items once."""
    fields: dict[str, FieldFacts] = {}
    sample: list[str] = []
    root: str | None = None
    step = max(1, count // _SAMPLE)
    number = 0
    for number, item in enumerate(items, 1):
        for name, value in item.metadata.items():
            if name in RESERVED or not isinstance(value, (str, bool, int, float)):
                continue
            if name in fields or len(fields) < _MOST_FIELDS:
                fields.setdefault(name, FieldFacts(name)).add(value)
        path = item.metadata.get("path")
        if isinstance(path, str) and os.path.isabs(path):
            folder = os.path.dirname(path)
            root = folder if root is None else os.path.commonpath([root, folder])
        if (number - 1) % step == step // 2 and len(sample) < _SAMPLE:
            sample.append(item.id)
    return Survey(number, dict(sorted(fields.items())), None if root is None else Path(root), sample)
