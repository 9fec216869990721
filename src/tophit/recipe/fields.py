"""The list of all fields of a recipe, as ``tophit train --explain`` prints it."""

import json
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tophit.recipe.choosing import Peer, Section, alternatives
from tophit.recipe.reading import REQUIRED
from tophit.recipe.recipe_files import name_key
from tophit.recipe.sections import CHOSEN, Recipe

Line = tuple[str, str, str, str]


def recipe_fields(recipe: Recipe | None = None) -> Iterator[Line]:
    """Yield (path, type, value, description) of every field, in order; the value is a recipe's, else the default."""
    for name, info in Recipe.model_fields.items():
        value = None if recipe is None else getattr(recipe, name)
        if name in CHOSEN:
            yield from _chosen_fields(name, info.get_default(call_default_factory=True) if value is None else value)
        else:
            yield from _fields_of(name, info, value)


def _chosen_fields(section: str, value: Section) -> Iterator[Line]:
    """Yield the field that holds the name, then the fields of this choice, then those of the others."""
    kind, key = CHOSEN[section], name_key(section)
    default = getattr(value, key)
    sections = {**({} if isinstance(value, Peer) else {default: type(value)}), **alternatives(kind)}
    if isinstance(value, Peer):
        yield from ((f"{section}.{name}", "argument", _written(each), "") for name, each in value.arguments.items())
    peers = ["pml/NAME"] if section in ("loss", "miner") else []
    choices = " | ".join([*sections, *peers, "package.module:Name"])
    yield f"{section}.{key}", choices, default, "Which one to use; each has its own fields."
    seen: set[str] = set()
    for choice in sections:
        for name, info in sections[choice].model_fields.items():
            shared = section == "batches"  # one section has the options of all samplers
            if name != key and not (shared and name in seen):
                seen.add(name)
                path = f"{section}.{name}"
                own = getattr(value, name, None) if choice == default or shared else None
                for line in _fields_of(path, info, own):
                    yield line if choice == default or shared else (f"{line[0]} ({choice})", *line[1:])


def _fields_of(path: str, info: FieldInfo, value: Any = None) -> Iterator[Line]:
    below = info.annotation
    if isinstance(below, type) and issubclass(below, BaseModel):
        for name, each in below.model_fields.items():
            yield from _fields_of(f"{path}.{name}", each, None if value is None else getattr(value, name))
    else:
        default = REQUIRED if info.is_required() else _written(info.default)
        yield path, _name_of(below), default if value is None else _written(value), info.description or ""


def _written(value: Any) -> str:
    """Return a value as a recipe's YAML reads it."""
    return value if isinstance(value, str) else json.dumps(value)


def _name_of(kind: Any) -> str:
    """Return a type as the user reads it: the words of a choice, the types of a union."""
    if get_origin(kind) in (Literal, Union, UnionType):
        return " | ".join(choice if isinstance(choice, str) else _name_of(choice) for choice in get_args(kind))
    if kind is NoneType:
        return "null"
    if hasattr(kind, "__metadata__"):
        return _name_of(get_args(kind)[0])
    if get_origin(kind) is tuple:
        return f"list of {_name_of(get_args(kind)[0])}"
    return str(kind) if get_args(kind) else kind.__name__
