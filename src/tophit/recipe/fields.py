"""The list of all fields of a recipe, as ``tophit train --explain`` prints it."""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tophit.recipe.paths import alternatives, as_section
from tophit.recipe.sections import Recipe


def recipe_fields() -> Iterator[tuple[str, str, str, str]]:
    """Yield (path, type, default, description) of every field, in order."""
    yield from _fields_of(Recipe, "")


def _fields_of(section: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, info in section.model_fields.items():
        below = as_section(info)
        choices = alternatives(info)
        if choices:
            default = info.default.name
            yield f"{prefix}{name}.name", " | ".join(choices), default, "Which of them; each has its own fields."
            for choice, kind in choices.items():
                for path, *rest in _fields_of(kind, f"{prefix}{name}."):
                    if path != f"{prefix}{name}.name":
                        yield path if choice == default else f"{path} ({choice})", *rest  # type: ignore[misc]
        elif below is None:
            yield f"{prefix}{name}", _type_name(info), _default_text(info), info.description or ""
        else:
            yield from _fields_of(below, f"{prefix}{name}.")


def _type_name(info: FieldInfo) -> str:
    return _name_of(info.annotation)


def _name_of(kind: Any) -> str:
    """Return a type as the user reads it: the words of a choice, the types of a union."""
    if get_origin(kind) in (Literal, Union, UnionType):
        return " | ".join(choice if isinstance(choice, str) else _name_of(choice) for choice in get_args(kind))
    if kind is NoneType:
        return "None"
    return str(kind) if get_args(kind) else kind.__name__


def _default_text(info: FieldInfo) -> str:
    return "(required)" if info.is_required() else str(info.default)
