"""Filters by metadata: a mapping such as ``{"label": "cat", "price": {"lt": 10}}``, every part of which must hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from tophit.errors import UsageError

Operator = Literal["eq", "ne", "in", "lt", "lte", "gt", "gte"]
MOST_CONDITIONS = 32
_OPERATORS: tuple[Operator, ...] = get_args(Operator)
_SCALARS = (str, bool, int, float)


@dataclass(frozen=True)
class Condition:
    """One metadata field compared with a value. An item without the field meets only ``ne``."""

    field: str
    operator: Operator
    value: Any


def parse_filter(where: Mapping[str, Any] | None) -> list[Condition]:
    """Read a filter: ``field: value`` is equality, a list means any of it, a mapping holds operators and values."""
    conditions: list[Condition] = []
    for field, wanted in (where or {}).items():
        if isinstance(wanted, Mapping):
            conditions += [_condition(field, str(operator), value) for operator, value in wanted.items()]
        else:
            conditions.append(_condition(field, "in" if isinstance(wanted, list) else "eq", wanted))
    if len(conditions) > MOST_CONDITIONS:
        raise UsageError(f"The filter has {len(conditions)} conditions; at most {MOST_CONDITIONS} are allowed.")
    return conditions


def _condition(field: str, operator: str, value: Any) -> Condition:
    if operator not in get_args(Operator):
        raise UsageError(
            f"filter.{field}: there is no operator '{operator}'; choices: {', '.join(get_args(Operator))}."
        )
    values = value if operator == "in" else [value]
    if not isinstance(values, list) or not values:
        raise UsageError(f"filter.{field}: 'in' takes a list of values, not {value!r}.")
    wrong = next((one for one in values if not isinstance(one, _SCALARS)), None)
    if wrong is not None:
        raise UsageError(f"filter.{field}: expected a text, a number or true/false, not {wrong!r}.")
    if operator in ("lt", "lte", "gt", "gte") and (isinstance(value, bool) or not isinstance(value, (int, float, str))):
        raise UsageError(f"filter.{field}: '{operator}' compares numbers or texts, not {value!r}.")
    return Condition(field, cast("Operator", operator), value)
