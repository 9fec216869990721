"""From the path of a recipe's field, such as loss.alpha, to the section that documents it."""

from collections.abc import Sequence
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tophit.recipe.sections import Recipe


def section_at(parts: Sequence[str]) -> type[BaseModel]:
    """Return the section at a path; after a field with alternatives comes the name of the one chosen."""
    section: type[BaseModel] = Recipe
    choices: dict[str, type[BaseModel]] = {}
    for part in parts:
        info = section.model_fields.get(part)
        section = choices.get(part) or (info and as_section(info)) or section
        choices = alternatives(info) if info else {}
    return section


def without_choices(parts: Sequence[str]) -> list[str]:
    """Return a path as the user writes it, without the name of the chosen alternative."""
    written: list[str] = []
    for i, part in enumerate(parts):
        before = section_at(parts[: i - 1]).model_fields.get(parts[i - 1]) if i else None
        if before is None or part not in alternatives(before):
            written.append(part)
    return written


def as_section(info: FieldInfo) -> type[BaseModel] | None:
    """Return the section a field holds; None if it is a plain value or a choice of sections."""
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def alternatives(info: FieldInfo) -> dict[str, type[BaseModel]]:
    """Return the sections a field may hold, by name; none if it is not a choice of sections."""
    kinds = [kind for kind in get_args(info.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return {kind.model_fields["name"].default: kind for kind in kinds if "name" in kind.model_fields}
