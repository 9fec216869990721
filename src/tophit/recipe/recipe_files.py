"""Recipe files: a file may name a base that it changes, and variants of itself.

``base: base.yaml`` names a file in the same folder, or a built-in recipe such as ``pnp/sop``. ``variants`` maps names
to changed fields; ``parts`` holds named changes that variants share and list under ``parts``. A table is one file of
many recipes, each made of a base and one choice from every part.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from tophit.errors import UsageError
from tophit.recipe.sections import CHOSEN
from tophit.recipe.yaml_text import parse_yaml
from tophit.registry import meant

_BASE = "base"  # a built-in file of this name is for others to build on, not to train with
_DEEPEST = 8


@cache
def shipped_files() -> dict[str, Any]:
    """Return the built-in recipe files by name: ``head``, or ``pnp/sop`` for a paper's."""
    root = files("tophit") / "recipes"
    found: dict[str, Any] = {}
    for entry in root.iterdir():
        if entry.name.endswith(".yaml"):
            found[entry.name.removesuffix(".yaml")] = entry
        elif entry.is_dir() and entry.name != "tables":
            for file in entry.iterdir():
                if file.name.endswith(".yaml") and file.name != f"{_BASE}.yaml":
                    found[f"{entry.name}/{file.name.removesuffix('.yaml')}"] = file
    return dict(sorted(found.items()))


@cache
def shipped_variants() -> dict[str, tuple[Any, str]]:
    """Return the file and variant of every built-in variant, by names such as ``mpa/cub200-dw``."""
    return {
        f"{name}-{variant}": (path, variant)
        for name, path in shipped_files().items()
        if "/" in name
        for variant in _load(path).get("variants", {})
    }


def read_file(path: Any, variant: str | None = None) -> dict[str, Any]:
    """Return the fields of a recipe file, or of one of its variants, with its bases merged in."""
    fields = _with_bases(path, 0)
    parts, variants = fields.pop("parts", {}), fields.pop("variants", {})
    if variant is None:
        return fields
    changes = dict(variants[variant])
    for part in changes.pop("parts", []):
        fields = merged(fields, parts[part])
    paper = _paper_of(fields, changes)
    changes.pop("paper", None)
    return {**merged(fields, changes), "paper": paper}


def _paper_of(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section ``paper`` of a variant: its numbers are not inherited."""
    return {**fields.get("paper", {}), "metrics": {}, **changes.get("paper", {})}


def name_of_row(title: str, table: str, row: str, metrics: Mapping[str, float]) -> str | None:
    """Return the name of the built-in recipe of a row of a paper's table; ``metrics`` are some of its numbers."""
    for name, paper in _papers():
        place = tuple(paper.get(key, "") for key in ("title", "table", "row"))
        if place == (title, table, row) and metrics.items() <= paper.get("metrics", {}).items():
            return name
    return None


@cache
def _papers() -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the section ``paper`` of every built-in recipe and variant that has one."""
    return list(_read_papers())


def _read_papers() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, path in shipped_files().items():
        if "/" in name:
            fields = _with_bases(path, 0)
            yield name, fields.get("paper", {})
            for variant, changes in fields.get("variants", {}).items():
                yield f"{name}-{variant}", _paper_of(fields, changes)


def _with_bases(path: Any, depth: int) -> dict[str, Any]:
    fields = _load(path)
    base = fields.pop("base", None)
    if base is None:
        return fields
    if depth >= _DEEPEST:
        raise UsageError(f"{path}: base: the chain of bases is circular, or longer than {_DEEPEST} files.")
    return merged(_with_bases(_place_of(str(base), path), depth + 1), fields)


def _place_of(base: str, path: Any) -> Any:
    beside = (path.parent if isinstance(path, Path) else Path(str(path)).parent) / base
    if beside.is_file():
        return beside
    shipped = shipped_files()
    if base not in shipped:
        raise UsageError(
            f"{path}: base: there is no file {beside} and no recipe '{base}'. Choices: {', '.join(shipped)}."
        )
    return shipped[base]


def _load(path: Any) -> dict[str, Any]:
    try:
        fields = deepcopy(_parsed(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {error}") from error
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise UsageError(f"{path} must hold sections such as 'data:' and 'loss:', not a {type(fields).__name__}.")
    return fields


@cache
def _parsed(text: str) -> Any:
    """Return the value of a YAML text; a paper's recipe is read for every row of its table."""
    return parse_yaml(text)


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two nested mappings; where both have a value, the second one's wins.

    A loss, miner or method of a different name replaces the whole section, since it has different fields. ``batches``
    keeps its fields: one section has the options of all samplers.
    """
    result = dict(one)
    for key, value in other.items():
        before = result.get(key)
        if isinstance(value, str) and key in CHOSEN:
            value = {name_key(key): value}
        if isinstance(value, dict) and isinstance(before, dict) and not _replaces(key, before, value):
            value = merged(before, value)
        result[key] = value
    return result


def _replaces(key: str, before: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    if key not in CHOSEN or "name" not in before:
        return False
    names = {meant(CHOSEN[key], str(each)) for each in (before["name"], value.get("name", before["name"]))}
    return len(names) > 1


def name_key(section: str) -> str:
    """Return the key that holds the name in a section chosen by name."""
    return "sampler" if section == "batches" else "name"


def table_rows() -> dict[str, dict[str, Any]]:
    """Return the fields of every recipe in the built-in tables, by names such as profs/triplet-hncm."""
    rows: dict[str, dict[str, Any]] = {}
    for entry in sorted((files("tophit") / "recipes" / "tables").iterdir(), key=lambda entry: entry.name):
        table = yaml.safe_load(entry.read_text(encoding="utf-8"))
        for choice in product(*(part.items() for part in table["parts"])):
            fields: dict[str, Any] = {}
            for part in (table["base"], *(fields for _, fields in choice)):
                fields = merged(fields, part)
            rows[f"{entry.name.removesuffix('.yaml')}/{'-'.join(name for name, _ in choice)}"] = fields
    return rows
