"""Filters by metadata: a mapping such as ``{"label": "cat", "price": {"lt": 10}}``, every part of which must hold."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from tophit.data.item_rows import LABELS, is_level, number_or_text
from tophit.errors import UsageError

Operator = Literal["eq", "ne", "in", "lt", "lte", "gt", "gte"]
MOST_CONDITIONS = 32
MOST_VALUES = 10_000
"""In one filter, those of its lists included."""
_INT64 = 2**63
_SCALARS = (str, bool, int, float)
_TYPED = re.compile(r"\s*([^=!<>]+?)\s*(!=|<=|>=|=|<|>)\s*(.*)", re.DOTALL)
_SIGNS = {"=": "eq", "!=": "ne", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}
_ALWAYS_TEXT = ("id", "path", "label", LABELS, "split")


@dataclass(frozen=True)
class Condition:
    """One metadata field compared with a value. An item without the field meets only ``ne``.

    ``labels`` of an item with several is a list: ``eq`` and ``in`` ask for one of these, ``ne`` for none of them.
    """

    field: str
    operator: Operator
    value: Any


def parse_filter(where: Mapping[str, Any] | None, most_values: int = MOST_VALUES) -> list[Condition]:
    """Read a filter: ``field: value`` is equality, a list means any of it, a mapping holds operators and values."""
    conditions: list[Condition] = []
    if not where:
        return conditions
    for field, wanted in where.items():
        if isinstance(wanted, Mapping):
            conditions += [_condition(field, str(operator), value) for operator, value in wanted.items()]
        else:
            conditions.append(_condition(field, "in" if isinstance(wanted, list) else "eq", wanted))
    if len(conditions) > MOST_CONDITIONS:
        raise UsageError(f"The filter has {len(conditions)} conditions; at most {MOST_CONDITIONS} are allowed.")
    values = sum(len(one.value) if one.operator == "in" else 1 for one in conditions)
    if values > most_values:
        raise UsageError(f"The filter has {values:,} values; at most {most_values:,} are allowed.")
    return conditions


def parse_typed_filter(texts: Sequence[str]) -> dict[str, Any]:
    """Read a filter as typed: ``label=cat``, ``label=cat,dog`` (any of them), ``price<10``, ``sold!=true``.

    A value in double quotes is text, whatever it looks like.

    >>> parse_typed_filter(["label=cat,dog", "price>=2", "price<10"])
    {'label': {'in': ['cat', 'dog']}, 'price': {'gte': 2, 'lt': 10}}
    """
    where: dict[str, dict[str, Any]] = {}
    for text in texts:
        match = _TYPED.fullmatch(text)
        if not match or not match.group(3).strip():
            raise UsageError(f"A condition is written like label=cat, price<10 or label!=dog, not '{text}'.")
        field, sign, value = match.group(1), match.group(2), match.group(3).strip()
        operator = _SIGNS[sign]
        conditions = where.setdefault(field, {})
        if operator == "eq" and "," in value and not value.startswith('"'):
            operator, wanted = "in", [_value(field, each.strip()) for each in value.split(",") if each.strip()]
        else:
            wanted = _value(field, value)
        if operator in conditions:
            raise UsageError(f"'{field}' has two conditions of the same kind ({sign}); one is enough.")
        conditions[operator] = wanted
    return where


def _condition(field: str, operator: str, value: Any) -> Condition:
    if operator not in get_args(Operator):
        raise UsageError(
            f"filter.{field}: there is no operator '{operator}'; choices: {', '.join(get_args(Operator))}."
        )
    values = value if operator == "in" else [value]
    if not isinstance(values, list) or not values:
        raise UsageError(f"filter.{field}: 'in' takes a list of values, not {value!r}.")
    for one in values:
        _check_value(field, one)
    if operator in ("lt", "lte", "gt", "gte") and isinstance(value, bool):
        raise UsageError(f"filter.{field}: '{operator}' compares numbers or text, not {value!r}.")
    if field == LABELS and operator in ("lt", "lte", "gt", "gte"):
        raise UsageError(
            "filter.labels: several labels have no order; write labels=red, labels=red,blue or labels!=red."
        )
    return Condition(field, cast("Operator", operator), value)


def _check_value(field: str, value: Any) -> None:
    """Refuse what no item can hold and a database can't take."""
    if not isinstance(value, _SCALARS):
        raise UsageError(f"filter.{field}: expected text, a number or true/false, not {value!r}.")
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise UsageError(f"filter.{field}: {value} needs more than 64 bits; items hold such numbers as text.")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"filter.{field}: expected a finite number, not {value!r}.")
    if isinstance(value, str):
        if "\0" in value:
            raise UsageError(f"filter.{field}: text can't hold the character NUL.")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"filter.{field}: this is not valid text: {error}.") from error


def _value(field: str, text: str) -> Any:
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        try:
            return json.loads(text)
        except ValueError:
            return text[1:-1]
    if field in _ALWAYS_TEXT or is_level(field):
        return text
    return text == "true" if text in ("true", "false") else number_or_text(text)
