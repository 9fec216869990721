"""Filters in Milvus's language, with one meaning on every version of it.

Milvus and Milvus Lite differ in how they compare JSON values of different types. So each item also stores its
metadata's scalars under keys that name their type (``n:price``, ``s:label``, ``b:sold``), and a condition asks only for
the key of its value's type. Numbers are stored as floats: integers beyond 2^53 are compared as their nearest float.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tophit.search.filters import Condition

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


def filterable_fields(metadata: Mapping[str, Any]) -> dict[str, str | float]:
    """Return the texts, numbers and truth values of metadata by typed key; the rest can't be filtered by."""
    return {
        _key(name, value): _plain(value) for name, value in metadata.items() if isinstance(value, str | int | float)
    }


def filter_expression(where: Sequence[Condition]) -> str:
    """Return the expression that holds where every condition does; empty for none."""
    return " and ".join(f"({_expression(condition)})" for condition in where)


def literal(value: str | float) -> str:
    """Return a text or a number as Milvus reads it."""
    return f'"{value.translate(_ESCAPES)}"' if isinstance(value, str) else repr(float(value))


def _expression(condition: Condition) -> str:
    if condition.operator == "in":
        return " or ".join(_expression(Condition(condition.field, "eq", value)) for value in condition.value)
    path = f"fields[{literal(_key(condition.field, condition.value))}]"
    compared = f"{path} {_SIGNS[condition.operator]} {literal(_plain(condition.value))}"
    return f"not exists {path} or {compared}" if condition.operator == "ne" else compared


def _key(name: str, value: Any) -> str:
    kind = "b" if isinstance(value, bool) else "s" if isinstance(value, str) else "n"
    return f"{kind}:{name}"


def _plain(value: Any) -> str | float:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else float(value)
