"""Texts that stand for values: the columns of a CSV, and filters as they are typed."""

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from tophit.errors import UsageError

_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,15})?")
_CONDITION = re.compile(r"\s*([^=!<>]+?)\s*(!=|<=|>=|=|<|>)\s*(.*)", re.DOTALL)
_OPERATORS = {"=": "eq", "!=": "ne", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_ALWAYS_TEXT = ("id", "path", "label", "split")


def number_or_text(text: str) -> int | float | str:
    """Return the number that a text reads as, such as 10 or 2.5; every other text, such as 007, stays one."""
    match = _NUMBER.fullmatch(text)
    if not match:
        return text
    return float(text) if match.group(2) else int(text)


def stored_value(value: Any) -> Any:
    """Return a manifest's value as metadata keep it: texts that read as numbers as such; None where there is none."""
    if isinstance(value, str):
        return number_or_text(value) if value else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def parse_conditions(texts: Sequence[str]) -> dict[str, Any]:
    """Read conditions as typed: ``label=cat``, ``label=cat,dog`` (any of them), ``price<10``, ``sold!=true``.

    A value in double quotes is a text whatever it looks like.

    >>> parse_conditions(["label=cat,dog", "price>=2", "price<10"])
    {'label': {'in': ['cat', 'dog']}, 'price': {'gte': 2, 'lt': 10}}
    """
    where: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = _CONDITION.fullmatch(text)
        if not match or not match.group(3).strip():
            raise UsageError(f"A condition is written like label=cat, price<10 or label!=dog, not '{text}'.")
        field, sign, value = match.group(1), match.group(2), match.group(3).strip()
        operator = _OPERATORS[sign]
        conditions = where.setdefault(field, {})
        if operator == "eq" and "," in value and not value.startswith('"'):
            operator, wanted = "in", [_value(field, each.strip()) for each in value.split(",") if each.strip()]
        else:
            wanted = _value(field, value)
        if operator in conditions:
            raise UsageError(f"'{field}' has two conditions of the same kind ({sign}); one is enough.")
        conditions[operator] = wanted
    return where


def _value(field: str, text: str) -> Any:
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        try:
            return json.loads(text)
        except ValueError:
            return text[1:-1]
    if field in _ALWAYS_TEXT:
        return text
    return text == "true" if text in ("true", "false") else number_or_text(text)
