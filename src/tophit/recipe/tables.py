"""Tables of recipes: one file that says many, each a base and one choice of every part."""

from importlib.resources import files
from itertools import product
from typing import Any

import yaml

from tophit.recipe.merging import merged


def table_rows() -> dict[str, dict[str, Any]]:
    """Return the fields of every recipe of the shipped tables, by names such as profs/triplet-hncm."""
    rows: dict[str, dict[str, Any]] = {}
    for entry in sorted((files("tophit") / "recipes" / "tables").iterdir(), key=lambda entry: entry.name):
        table = yaml.safe_load(entry.read_text(encoding="utf-8"))
        for choice in product(*(part.items() for part in table["parts"])):
            fields: dict[str, Any] = {}
            for part in (table["base"], *(fields for _, fields in choice)):
                fields = merged(fields, part)
            rows[f"{entry.name.removesuffix('.yaml')}/{'-'.join(name for name, _ in choice)}"] = fields
    return rows
