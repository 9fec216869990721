"""Recipes built on others: nested fields merged, a base first, what comes later wins."""

from collections.abc import Mapping
from typing import Any

CHOSEN_BY_NAME = ("loss", "miner", "method")


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return two nested mappings as one; where both have a value, the other's wins.

    A loss, miner or method of another name replaces the whole section, whose fields it does not have.
    """
    result = dict(one)
    for key, value in other.items():
        before = result.get(key)
        if key in CHOSEN_BY_NAME and isinstance(value, str):
            value = {"name": value}
        if isinstance(value, dict) and isinstance(before, dict) and not _replaces(key, before, value):
            value = merged(before, value)
        result[key] = value
    return result


def _replaces(key: str, before: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    return key in CHOSEN_BY_NAME and value.get("name", before.get("name")) != before.get("name")
