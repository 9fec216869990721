"""Filters that can't be met: which fields and values an index has instead."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tophit.data.item_rows import LABELS, listed_labels
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
            if field == LABELS and (labels := listed_labels(item.metadata)):
                values[field].update(labels)
            elif field in item.metadata:
                values[field][str(item.metadata[field])] += 1
    asked = {condition.field: condition.value for condition in parse_filter(where) if condition.operator == "eq"}
    return "No item meets the filter. " + " ".join(
        _listed(field, found, asked.get(field)) for field, found in values.items()
    )


def _listed(field: str, values: Counter[Any], asked: Any = None) -> str:
    some = sorted(value for value, _ in values.most_common(_SHOWN))
    rest = f" and {len(values) - _SHOWN:,} more" if len(values) > _SHOWN else ""
    return f"Values of {field}: {', '.join(some)}{rest}.{_meant(str(asked), values)}"


def _meant(asked: str, values: Iterable[str]) -> str:
    """Suggest a value that differs only in case or by a few letters, or that is the end of a branch."""
    listed = sorted(values)
    alike = [value for value in listed if asked.lower() in (value.lower(), value.rpartition("/")[2].lower())]
    return f" Did you mean '{alike[0]}'?" if alike else did_you_mean(asked, listed)
