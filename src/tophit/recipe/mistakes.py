"""What is wrong in a recipe, in words: the path, what stands there, and what would be right."""

import difflib
from collections.abc import Sequence
from typing import Any

from tophit.recipe.paths import alternatives, section_at, without_choices


def explain(problem: dict[str, Any]) -> str:
    """Return one of pydantic's findings as a sentence."""
    parts = [str(part) for part in problem["loc"]]
    path = ".".join(without_choices(parts))
    if problem["type"] == "extra_forbidden":
        choices = sorted(section_at(parts[:-1]).model_fields)
        return f"{path}: unknown key.{_nearest(parts[-1], choices)} Choices: {', '.join(choices)}."
    if problem["type"] == "literal_error":
        choices = _literal_choices(parts)
        value = problem["input"]
        return f"{path}: unknown value '{value}'.{_nearest(value, choices)} Choices: {', '.join(choices)}."
    if problem["type"] == "union_tag_invalid":
        choices = list(alternatives(section_at(parts[:-1]).model_fields[parts[-1]]))
        value = problem["ctx"]["tag"]
        return f"{path}.name: unknown value '{value}'.{_nearest(value, choices)} Choices: {', '.join(choices)}."
    if problem["type"] in ("model_attributes_type", "union_tag_not_found"):
        return f"{path}: is a section with a name and its fields, not {problem['input']!r}."
    if problem["type"] == "missing":
        return f"{path}: needs a value. {_description(parts)}".rstrip()
    if problem["type"] == "string_pattern_mismatch":
        return f"{path}: unknown value '{problem['input']}'. {_description(parts)}"
    if problem["type"] == "model_type":
        return f"{path}: is a section with {', '.join(section_at(parts).model_fields)}, not {problem['input']!r}."
    return f"{path}: {problem['msg']}, got {problem['input']!r}. {_description(parts)}".rstrip()


def _nearest(word: Any, choices: Sequence[str]) -> str:
    by_initials = [choice for choice in choices if "".join(part[0] for part in choice.split("-") if part) == word]
    near = by_initials or difflib.get_close_matches(str(word), choices, 1)
    return f" Did you mean '{near[0]}'?" if near else ""


def _literal_choices(parts: Sequence[str]) -> list[str]:
    return [
        str(choice) for choice in getattr(section_at(parts[:-1]).model_fields[parts[-1]].annotation, "__args__", ())
    ]


def _description(parts: Sequence[str]) -> str:
    fields = section_at(parts[:-1]).model_fields
    return fields[parts[-1]].description or "" if parts[-1] in fields else ""
