"""The list of all fields of a recipe, as ``tophit train --fields`` prints it."""

from collections.abc import Iterator

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
    choices = getattr(info.annotation, "__args__", None)
    if choices and all(isinstance(choice, str) for choice in choices):
        return " | ".join(choices)
    name = getattr(info.annotation, "__name__", str(info.annotation))
    return name if choices is None else str(info.annotation).replace("NoneType", "None")


def _default_text(info: FieldInfo) -> str:
    return "(required)" if info.is_required() else str(info.default)
