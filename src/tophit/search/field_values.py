"""Filters that can't be met: which fields and values an index has instead."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tophit.errors import UsageError
from tophit.registry import did_you_mean
from tophit.search.filters import parse_filter
from tophit.search.index import Index

_SHOWN = 12


def check_fields(index: Index, named: Iterable[str]) -> None:
    """Raise if a query names a field that no item has. Only such a query makes this read the whole index."""
    missing, known = set(named) - {"id"}, set[str]()
    if not missing:
        return
    for item in index.items():
        known |= item.metadata.keys()
        missing -= item.metadata.keys()
        if not missing:
            return
    if known:
        raise unknown_field(min(missing), known)


def unknown_field(name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a field that no item has."""
    listed = sorted(known)
    return UsageError(f"No item has a field '{name}'.{did_you_mean(name, listed)} Fields: {', '.join(listed)}.")


def why_nothing(index: Index, where: Mapping[str, Any] | None) -> str:
    """Return a sentence on a filter that no item meets: for each of its fields, the values that there are."""
    fields = list(dict.fromkeys(condition.field for condition in parse_filter(where)))
    values: dict[str, Counter[Any]] = {field: Counter() for field in fields}
    for item in index.items():
        for field in fields:
            if field in item.metadata:
                values[field][str(item.metadata[field])] += 1
    return "No item meets the filter. " + " ".join(_listed(field, found) for field, found in values.items())


def _listed(field: str, values: Counter[Any]) -> str:
    some = sorted(value for value, _ in values.most_common(_SHOWN))
    rest = f" and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else ""
    return f"Values of {field}: {', '.join(some)}{rest}."
