"""From a YAML file and the command line's overrides to a checked recipe."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tophit.errors import UsageError
from tophit.recipe.mistakes import explain
from tophit.recipe.sections import Recipe
from tophit.recipe.tables import table_rows

_CHOSEN_BY_NAME = ("loss", "miner", "method")


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
    """Return the names of the recipes that ship with Tophit."""
    return sorted(entry.name.removesuffix(".yaml") for entry in _shipped().iterdir() if entry.name.endswith(".yaml"))


def _shipped() -> Any:
    return files("tophit") / "recipes"


def _read(source: str | Path) -> dict[str, Any]:
    """Return the fields of a recipe file, of a shipped recipe, or of a row of a shipped table."""
    path = Path(source).expanduser()
    if path.is_file():
        return _read_yaml(path)
    if str(source) in recipe_names():
        return _read_yaml(_shipped() / f"{source}.yaml")
    rows = table_rows()
    if str(source) in rows:
        return rows[str(source)]
    raise UsageError(
        f"There is no recipe file '{source}', and no recipe of that name: {', '.join([*recipe_names(), *rows])}."
    )


def _read_yaml(path: Any) -> dict[str, Any]:
    try:
        fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise UsageError(f"{path} must hold sections such as 'data:' and 'loss:', not a {type(fields).__name__}.")
    return fields


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
        if isinstance(below, str) and parent in _CHOSEN_BY_NAME:
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
