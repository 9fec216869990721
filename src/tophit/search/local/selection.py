"""Which items a filter allows, as keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from tophit.search.filters import Condition
from tophit.search.local.database import Database, kind_of

_SQL = {"eq": "=", "ne": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


@dataclass(frozen=True)
class Selection:
    """The allowed keys, ascending; or, where there are no ``keys``, all but the ``excluded`` ones."""

    keys: np.ndarray | None
    excluded: np.ndarray

    def rows(self, keys: np.ndarray, live: np.ndarray | None) -> np.ndarray:
        """Return the allowed rows, ascending, of a part with these ascending keys."""
        if self.keys is not None:
            rows = rows_of(keys, self.keys)
            return rows if live is None else rows[live[rows]]
        mask = np.ones(len(keys), bool) if live is None else live.copy()
        mask[rows_of(keys, self.excluded)] = False
        return np.flatnonzero(mask)


def select(database: Database, where: Sequence[Condition]) -> Selection:
    """Find the items that meet every condition."""
    nothing = np.empty(0, np.int64)
    included = [_matching(database, one) for one in where if one.operator != "ne"]
    excluded = [_matching(database, one) for one in where if one.operator == "ne"]
    without = reduce(np.union1d, excluded, nothing)
    if not included:
        return Selection(None, without)
    included.sort(key=len)
    return Selection(np.setdiff1d(reduce(np.intersect1d, included), without, assume_unique=True), nothing)


def _matching(database: Database, condition: Condition) -> np.ndarray:
    """Return the keys of the items that meet a condition; of ``ne``, those that do not."""
    if condition.operator == "in":
        found = [_compared(database, condition.field, "=", value) for value in condition.value]
    else:
        found = [_compared(database, condition.field, _SQL[condition.operator], condition.value)]
    return np.unique(np.concatenate(found))


def _compared(database: Database, field: str, operator: str, value: object) -> np.ndarray:
    rows = database.connection.execute(
        f"SELECT key FROM fields WHERE field = ? AND kind = ? AND value {operator} ?", (field, kind_of(value), value)
    )
    return np.fromiter((row[0] for row in rows), np.int64)


def rows_of(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where the wanted keys are in ascending keys; those that are not there are left out."""
    places = np.searchsorted(keys, wanted)
    inside = places < len(keys)
    places, wanted = places[inside], wanted[inside]
    return places[keys[places] == wanted]
