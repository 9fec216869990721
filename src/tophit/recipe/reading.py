"""From a YAML file and the command line's overrides to a checked recipe."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tophit.errors import UsageError
from tophit.recipe.files import read_file, shipped_files, shipped_variants
from tophit.recipe.merging import CHOSEN_BY_NAME
from tophit.recipe.mistakes import explain
from tophit.recipe.sections import Recipe
from tophit.recipe.tables import table_rows


def read_recipe(source: str | Path | None, overrides: Sequence[str] = (), data: str | None = None) -> Recipe:
    """Read a recipe from a YAML file, or a shipped one by its name, and apply overrides such as ``loss.alpha=2``.

    ``data`` is the manifest's path as it is; an override's value is YAML, in which a folder called 2024 is a number.
    """
    fields = {} if source is None else _read(source)
    if data is not None:
        _section_of(fields, ["data"], "data.manifest")["manifest"] = data
    for override in overrides:
        _apply(fields, override)
    return make_recipe(fields, "the command line" if source is None else str(source))


def make_recipe(fields: dict[str, Any], where: str = "the recipe") -> Recipe:
    """Return the recipe of nested plain values; every mistake is named with its path and what would be right."""
    try:
        return Recipe.model_validate({"data": {}, **fields})
    except ValidationError as error:
        problems = [explain(dict(problem)) for problem in error.errors()]
        raise UsageError(f"In {where}:\n" + "\n".join(f"  {problem}" for problem in problems)) from None


def recipe_names() -> list[str]:
    """Return the names of the recipes that ship with Tophit; each may have variants beside it."""
    return list(shipped_files())


def variant_names() -> list[str]:
    """Return the names of the shipped recipes' variants: other rows of the papers' tables."""
    return list(shipped_variants())


def _read(source: str | Path) -> dict[str, Any]:
    """Return the fields of a recipe file, of a shipped recipe or its variant, or of a row of a shipped table."""
    path = Path(source).expanduser()
    if path.is_file():
        return read_file(path)
    name, shipped = str(source), shipped_files()
    if name in shipped:
        return read_file(shipped[name])
    variants = shipped_variants()
    if name in variants:
        return read_file(*variants[name])
    rows = table_rows()
    if name in rows:
        return rows[name]
    near = difflib.get_close_matches(name, [*shipped, *variants, *rows], 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise UsageError(
        f"There is no recipe file '{source}', and no recipe of that name: {', '.join(shipped)}.{hint} "
        "All of them: tophit train --list."
    )


def _apply(fields: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise UsageError(f"'{override}' does not set anything; write it as loss.alpha=2.")
    *parents, last = key.strip().split(".")
    section = _section_of(fields, parents, key)
    try:
        section[last] = _plain_value(text)
    except yaml.YAMLError as error:
        raise UsageError(f"'{override}': the value is not YAML: {error}") from error


def _section_of(fields: dict[str, Any], parents: Sequence[str], key: str) -> dict[str, Any]:
    """Return the section at a path of keys, made where there is none."""
    for parent in parents:
        below = fields.setdefault(parent, {})
        if isinstance(below, str) and parent in CHOSEN_BY_NAME:
            below = fields[parent] = {"name": below}
        if not isinstance(below, dict):
            raise UsageError(f"'{key}': '{parent}' is a value, not a section.")
        fields = below
    return fields


def _plain_value(text: str) -> Any:
    value = yaml.safe_load(text)
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 as text
        try:
            return float(value)
        except ValueError:
            return value
    return value
