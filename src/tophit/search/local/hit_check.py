"""A look at what a filter let through: the hits' own metadata must say the same as the table that was asked."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tophit.data.item_rows import LABELS, listed_labels
from tophit.errors import TophitError
from tophit.search.filters import Condition
from tophit.search.local.fields import kind_of

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "lte": operator.le,
    "gt": operator.gt,
    "gte": operator.ge,
}


def check_hits(metadata: Sequence[Mapping[str, Any]], where: Sequence[Condition]) -> None:
    """Raise if an item that was found does not meet a condition: then the fields to filter by are damaged."""
    for condition in where:
        meets = _test_of(condition)
        for fields in metadata:
            if not _is_met(meets, fields, condition):
                raise TophitError(
                    f"The index is damaged: an item was found that does not meet the condition on "
                    f"'{condition.field}'; repair it."
                )


def _is_met(meets: Callable[[Any], bool], fields: Mapping[str, Any], condition: Condition) -> bool:
    labels = listed_labels(fields) if condition.field == LABELS else []
    if not labels:
        return meets(fields.get(condition.field))
    return (all if condition.operator == "ne" else any)(map(meets, labels))


def _test_of(condition: Condition) -> Callable[[Any], bool]:
    """Return what tells whether a value meets a condition; values of another kind meet only ``ne``."""
    if condition.operator in ("in", "eq", "ne"):
        values = condition.value if condition.operator == "in" else [condition.value]
        wanted, is_among = {(kind_of(each), each) for each in values}, condition.operator != "ne"
        return lambda value: (kind_of(value) is not None and (kind_of(value), value) in wanted) == is_among
    compare, kind = _COMPARE[condition.operator], kind_of(condition.value)
    return lambda value: kind_of(value) == kind and compare(value, condition.value)
