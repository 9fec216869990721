"""Filters: which items meet every condition, asked of the database once, and which rows of a part those are."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from tophit.cancelling import check_cancelled
from tophit.search.filters import Condition
from tophit.search.local.approximate import Allowed
from tophit.search.local.database import Database
from tophit.search.local.fields import kind_of
from tophit.search.local.keys import all_keys, rows_of

if TYPE_CHECKING:
    from tophit.search.local.part_search import Part

_SQL = {"eq": "=", "ne": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


@dataclass(frozen=True)
class Selection:
    """The allowed keys, ascending; or, where there are no ``keys``, all but the ``excluded`` ones."""

    keys: np.ndarray | None
    excluded: np.ndarray
    _known: "dict[int, tuple[Part, Allowed]]" = field(default_factory=dict)

    def allowed(self, part: "Part") -> Allowed:
        """Return the allowed rows of a part; the answer is kept, so it holds until something is written."""
        if id(part) not in self._known:
            self._known[id(part)] = part, Allowed(self._rows(part.keys, part.live), len(part.keys))
        return self._known[id(part)][1]

    def _rows(self, keys: np.ndarray, live: np.ndarray | None) -> np.ndarray:
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
    check_cancelled()
    if condition.operator == "in":
        return _any_of(database, condition.field, condition.value)
    rows = database.connection.execute(
        f"SELECT key FROM fields WHERE field = ? AND kind = ? AND value {_SQL[condition.operator]} ?",
        (condition.field, kind_of(condition.value), condition.value),
    )
    return np.unique(all_keys(rows))


def _any_of(database: Database, field: str, values: Sequence[Any]) -> np.ndarray:
    """Return the keys of the items whose field has any of these values, by one query for each kind of value."""
    by_kind: dict[int | None, list[Any]] = {}
    for value in values:
        by_kind.setdefault(kind_of(value), []).append(value)
    query = "SELECT key FROM fields WHERE field = ? AND kind = ? AND value IN (SELECT value FROM json_each(?))"
    run = database.connection.execute
    found = [all_keys(run(query, (field, kind, json.dumps(some)))) for kind, some in by_kind.items()]
    return np.unique(np.concatenate(found))
