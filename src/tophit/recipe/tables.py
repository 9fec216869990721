"""Tables of recipes: one file that says many, each a base and one choice of every part."""

from collections.abc import Mapping
from importlib.resources import files
from itertools import product
from typing import Any

import yaml


def table_rows() -> dict[str, dict[str, Any]]:
    """Return the fields of every recipe of the shipped tables, by names such as profs/triplet-hncm."""
    rows: dict[str, dict[str, Any]] = {}
    for entry in sorted((files("tophit") / "recipes" / "tables").iterdir(), key=lambda entry: entry.name):
        table = yaml.safe_load(entry.read_text(encoding="utf-8"))
        for choice in product(*(part.items() for part in table["parts"])):
            fields: dict[str, Any] = {}
            for part in (table["base"], *(fields for _, fields in choice)):
                fields = _merged(fields, part)
            rows[f"{entry.name.removesuffix('.yaml')}/{'-'.join(name for name, _ in choice)}"] = fields
    return rows


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return two nested mappings as one; where both have a value, the other's wins."""
    merged = dict(one)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged
