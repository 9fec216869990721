"""From a YAML file and the command line's overrides to a checked recipe; every mistake is reported with its path."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from tophit.errors import UsageError
from tophit.recipe.recipe_files import (
    merged,
    name_key,
    name_of_row,
    read_file,
    shipped_files,
    shipped_variants,
    table_rows,
)
from tophit.recipe.sections import CHOSEN, Recipe
from tophit.recipe.yaml_text import parse_yaml
from tophit.registry import did_you_mean, is_known, meant

REQUIRED = "(required)"  # stands for the data that a recipe to explain does not name

_WITHOUT_RECIPE: dict[str, Any] = {"embedder": {"head_start": "whitened"}}  # where a user names only data


def read_recipe(
    source: str | Path | Mapping[str, Any] | None,
    overrides: Sequence[str] = (),
    data: str | None = None,
    absent: Mapping[str, Any] | None = None,
    *,
    fields: Mapping[str, Any] | None = None,
    to_explain: bool = False,
) -> Recipe:
    """Read a recipe from a YAML file, a built-in one by its name, or a dictionary of what a file would hold.

    ``data`` is the manifest's path, taken literally; an override's value is YAML, where a folder named 2024 would be a
    number. ``absent`` are fields to use instead of the defaults where the file lacks them. ``overrides`` such as
    ``loss.alpha=2``, and the nested values ``fields``, change it. A recipe only ``to_explain`` need not name any data.
    """
    where = "the command line" if source is None else "the recipe" if isinstance(source, Mapping) else str(source)
    changes = fields or {}
    fields = merged({}, _WITHOUT_RECIPE) if source is None else merged(absent or {}, _read(source))
    fields = merged(fields, changes)
    if to_explain:
        _section_of(fields, ["data"], "data.manifest").setdefault("manifest", REQUIRED)
    if data is not None:
        _section_of(fields, ["data"], "data.manifest")["manifest"] = data
    fields = apply_overrides(fields, overrides)
    return make_recipe(fields, where)


def apply_overrides(fields: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Return nested fields with overrides such as ``loss.alpha=2`` applied; the given ones stay as they are."""
    changed = deepcopy(dict(fields))
    for override in overrides:
        _apply(changed, override)
    return changed


def make_recipe(fields: dict[str, Any], where: str = "the recipe") -> Recipe:
    """Return the recipe of nested plain values; every mistake is reported with its path and what would be right."""
    try:
        return Recipe.model_validate({"data": {}, **fields})
    except ValidationError as error:
        raise UsageError(problems_in(where, error, Recipe)) from None


def problems_in(where: str, error: ValidationError, section: type[BaseModel]) -> str:
    """Return what is wrong with the fields of a section, a line each: the path, and what would be right."""
    problems = [sentence for problem in error.errors() for sentence in _explain(dict(problem), section)]
    return f"In {where}:\n" + "\n".join(f"  {problem}" for problem in problems)


def overridden(overrides: Sequence[str]) -> set[str]:
    """Return the paths of the fields that overrides such as ``loss.alpha=2`` set."""
    return {override.partition("=")[0].strip() for override in overrides}


def paths_in(fields: Mapping[str, Any]) -> set[str]:
    """Return the paths of the values in nested fields.

    >>> sorted(paths_in({"loss": "pnp", "embedder": {"dim": 64, "size": 32}}))
    ['embedder.dim', 'embedder.size', 'loss']
    """
    found: set[str] = set()
    for key, value in fields.items():
        found |= {f"{key}.{path}" for path in paths_in(value)} if isinstance(value, Mapping) else {key}
    return found


def recipe_names() -> list[str]:
    """Return the names of the built-in recipes; each may also have variants."""
    return list(shipped_files())


def variant_names() -> list[str]:
    """Return the names of the built-in recipes' variants: other rows of the papers' tables."""
    return list(shipped_variants())


def shipped_for_paper(recipe: Recipe) -> tuple[str, Recipe] | None:
    """Return the built-in recipe, with its name, of the row of a paper's table that a recipe names; None without one.

    Title, table, row and numbers identify it, so that recipes of earlier runs and those that build on a built-in one
    are recognised too.
    """
    paper = recipe.paper
    name = name_of_row(paper.title, paper.table, paper.row, paper.metrics) if paper.metrics else None
    return None if name is None else (name, read_recipe(name, data=recipe.data.manifest))


def _read(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a recipe: of a file, a built-in one or its variant, a row of a table, or a dictionary."""
    if isinstance(source, Mapping):
        fields = dict(source)
        base = fields.pop("base", None)
        return fields if base is None else merged(_read(base), fields)
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
    if hint := _paper_or_setting(name, shipped):
        raise UsageError(f"There is no recipe '{source}'.{hint} To list all recipes: tophit train --list.")
    hint = did_you_mean(name, [*shipped, *variants, *rows])
    raise UsageError(
        f"There is no recipe file '{source}', nor a built-in recipe of that name ({', '.join(shipped)}).{hint} "
        "To list them all: tophit train --list."
    )


def _paper_or_setting(name: str, shipped: Mapping[str, Any]) -> str:
    """Return a hint for a name that is no recipe but a paper, a loss or a method: what to type instead."""
    word = name.lower().replace("-", "")
    papers = [each for each in shipped if each.startswith(f"{word}/")]
    kind = next((kind for kind in ("loss", "method") if is_known(kind, meant(kind, name))), None)
    hints = [f" '{name}' is a paper with the recipes {', '.join(papers)}."] if papers else []
    hints += [f" On your own images: tophit train head --set {kind}={name} --data PATH."] if kind else []
    return "".join(hints)


def _apply(fields: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise UsageError(f"'{override}' does not set a field; write FIELD=VALUE, such as loss.alpha=2.")
    *parents, last = key.strip().split(".")
    section = _section_of(fields, parents, key)
    try:
        section[last] = _plain_value(text)
    except yaml.YAMLError as error:
        raise UsageError(f"'{override}': the value is not YAML: {error}") from error


def _section_of(fields: dict[str, Any], parents: Sequence[str], key: str) -> dict[str, Any]:
    """Return the section at a path of keys, creating it if there is none."""
    for parent in parents:
        below = fields.setdefault(parent, {})
        if isinstance(below, str) and parent in CHOSEN:
            below = fields[parent] = {name_key(parent): below}
        if not isinstance(below, dict):
            raise UsageError(f"'{key}': '{parent}' is a value, not a section.")
        fields = below
    return fields


def _plain_value(text: str) -> Any:
    value = parse_yaml(text)
    if isinstance(value, str):  # YAML 1.1 reads 1e-3 as text
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _explain(problem: Mapping[str, Any], section: type[BaseModel], above: Sequence[str] = ()) -> Iterator[str]:
    """Yield sentences about what is wrong: the path, the value given, and what would be right."""
    parts = [str(part) for part in problem["loc"]]
    path, given, context = ".".join([*above, *parts]), problem["input"], problem.get("ctx", {})
    if problem["type"] == "in_section":
        for each in context["problems"]:
            yield from _explain(each, context["section"], parts)
        return
    if not parts:  # about several fields together
        yield problem["msg"].removeprefix("Value error, ")
        return
    fields = _section_at(section, parts[:-1]).model_fields
    field = fields.get(parts[-1])
    described = (field.description or "") if field else ""
    if problem["type"] == "extra_forbidden":
        known = sorted(fields)
        yield f"{path}: unknown key.{did_you_mean(parts[-1], known)} Choices: {', '.join(known)}."
    elif problem["type"] == "literal_error":
        known = [str(choice) for choice in getattr(field.annotation, "__args__", ())] if field else []
        yield f"{path}: unknown value '{given}'.{did_you_mean(given, known)} Choices: {', '.join(known)}."
    elif problem["type"] == "unknown_choice":
        yield f"{path}.{context['key']}: unknown value '{context['name']}'.{problem['msg']}."
    elif problem["type"] == "unknown_name":
        yield f"{path}: unknown value '{given}'.{problem['msg']}."
    elif problem["type"] == "unusable_choice":
        yield f"{path}.{context['key']}: {problem['msg']}"
    elif problem["type"] == "refused_name":
        yield f"{path}: {problem['msg']}"
    elif problem["type"] == "not_chosen":
        yield f"{path}: {problem['msg']}, not {given!r}."
    elif problem["type"] == "missing":
        yield f"{path}: needs a value. {described}".rstrip()
    elif problem["type"] in ("model_type", "model_attributes_type"):
        yield f"{path}: must be a section with {', '.join(_section_at(section, parts).model_fields)}, not {given!r}."
    else:
        yield f"{path}: {problem['msg'].removeprefix('Value error, ')}, got {given!r}. {described}".rstrip()


def _section_at(section: type[BaseModel], parts: Sequence[str]) -> type[BaseModel]:
    """Return the section at a path below another one."""
    of_names: type[BaseModel] | None = None  # what a mapping such as a plan's candidates holds under its names
    for part in parts:
        if of_names is not None:
            section, of_names = of_names, None
            continue
        info = section.model_fields.get(part)
        kind = info.annotation if info else None
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
            of_names = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
        elif isinstance(kind, type) and issubclass(kind, BaseModel):
            section = kind
    return section
