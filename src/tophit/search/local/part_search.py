"""Search over the parts of an index: segments and delta together."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tophit.cancelling import check_cancelled
from tophit.search.exact import exact_scores
from tophit.search.local.database import Selection

if TYPE_CHECKING:
    from tophit.search.local.delta import Delta
    from tophit.search.local.segment import Segment

Part: TypeAlias = "Segment | Delta"
"""Rows with ascending keys, vectors and ids; ``live`` tells which rows are not deleted, None if no row is."""
_EXTRA = 8
"""Candidates beyond k, so that ties at the end can be seen and the id decides."""
_MOST_TIES = 1_000_000
"""Candidates that tie, of all queries that are looked at together: an index may hold one picture very often."""
_FEW = 4
"""Queries up to which plain Python is faster than NumPy."""


class Found(NamedTuple):
    """The results of queries, best first: a list for each query. ``keys`` is empty if they were not asked for.

    Lists of numbers and strings instead of one object per result: with many queries, those would cost as much as the
    search.
    """

    scores: list[list[float]]
    ids: list[list[str]]
    keys: list[list[int]]

    def extend(self, more: "Found") -> None:
        """Add the results of more queries."""
        for column, others in zip(self, more, strict=True):
            column.extend(others)  # type: ignore[arg-type]

    def put(self, place: int, other: "Found", at: int) -> None:
        """Replace the results of one query by those of another search."""
        for column, others in zip(self, other, strict=True):
            column[place : place + 1] = others[at : at + 1]  # type: ignore[assignment]

    def first(self, place: int, k: int) -> None:
        """Keep the first k results of one query, equal scores in the order of ids."""
        scores, ids = self.scores[place], self.ids[place]
        order = sorted(range(len(ids)), key=lambda one: (-scores[one], ids[one]))[:k]
        for column in self:
            if column:
                column[place] = [column[place][one] for one in order]  # type: ignore[assignment]


def nearest(
    parts: Sequence[Part], queries: np.ndarray, k: int, selection: Selection | None, with_keys: bool = True
) -> Found:
    """Return the up to k nearest allowed rows of each query (Q, dim); equal scores in the order of ids."""
    allowed = [None if selection is None else selection.rows(part.keys, part.live) for part in parts]
    sizes = [part.live_count if rows is None else len(rows) for part, rows in zip(parts, allowed, strict=True)]
    chosen = [i for i, size in enumerate(sizes) if size]
    if not chosen:
        return Found(*([[] for _ in queries] for _ in range(3)))
    some = [(parts[i], allowed[i]) for i in chosen]
    return _nearest(some, queries, _Wanted(k, with_keys), _EXTRA, sum(sizes))


class _Wanted(NamedTuple):
    """How many results of a query, and whether with their keys."""

    k: int
    keys: bool


def _nearest(
    parts: Sequence[tuple[Part, np.ndarray | None]], queries: np.ndarray, results: _Wanted, extra: int, total: int
) -> Found:
    """Collect each part's candidates, order them, and search further where more items tie than were fetched."""
    check_cancelled()
    wanted = min(results.k + extra, total)
    rows = [part.search(queries, wanted, allowed) for part, allowed in parts]
    scores = [exact_scores(queries, part.vectors, r) for (part, _), r in zip(parts, rows, strict=True)]
    name = _named_singly if len(queries) <= _FEW else _named
    found, ties = name([part for part, _ in parts], rows, scores, results)
    open_ends = [place for place, count in enumerate(ties) if count >= wanted] if results.k < wanted < total else []
    step = max(1, _MOST_TIES // (results.k + 8 * extra))
    for start in range(0, len(open_ends), step):
        some = open_ends[start : start + step]
        again = _nearest(parts, queries[some], results, 8 * extra, total)
        for at, place in enumerate(some):
            found.put(place, again, at)
    return found


def _named_singly(
    parts: Sequence[Part], rows: Sequence[np.ndarray], scores: Sequence[np.ndarray], results: _Wanted
) -> tuple[Found, list[int]]:
    """Do the same as :func:`_named` in plain Python, query by query: faster for a few queries."""
    found, ties = Found([], [], []), []
    for query in range(len(rows[0])):
        candidates = [
            (-score, number, row)
            for number in range(len(parts))
            for score, row in zip(scores[number][query].tolist(), rows[number][query].tolist(), strict=True)
            if row >= 0
        ]
        candidates.sort()
        end = min(results.k, len(candidates))
        while end < len(candidates) and candidates[end][0] == candidates[end - 1][0]:
            end += 1
        chosen = candidates[:end]
        found.scores.append([-score for score, _, _ in chosen])
        found.ids.append([parts[number].id_of(row) for _, number, row in chosen])
        if results.keys:
            found.keys.append([int(parts[number].keys[row]) for _, number, row in chosen])
        if any(one == other for one, other in pairwise(found.scores[-1])):
            found.first(query, results.k)
        ties.append(end)
    return found, ties


def _named(
    parts: Sequence[Part], rows: Sequence[np.ndarray], scores: Sequence[np.ndarray], results: _Wanted
) -> tuple[Found, list[int]]:
    """Turn each part's candidates (Q, C) into the first k results with ids, those that tie in the order of ids.

    Return also how many candidates of each query are as good as its k-th or better.
    """
    all_rows, all_scores = (each[0] if len(parts) == 1 else np.concatenate(each, axis=1) for each in (rows, scores))
    order = np.argsort(-all_scores, axis=1)
    all_scores = np.take_along_axis(all_scores, order, axis=1)
    ends = _ends(all_scores, results.k)
    mask = np.arange(all_scores.shape[1]) < ends[:, None]
    owner = np.repeat(np.arange(len(parts)), [r.shape[1] for r in rows])[order][mask] if len(parts) > 1 else None
    ids, keys = _ids_and_keys(parts, owner, np.take_along_axis(all_rows, order, axis=1)[mask], results.keys)
    stops = np.cumsum(ends).tolist()
    found = Found(
        _split(all_scores[mask].tolist(), stops), _split(ids, stops), _split(keys, stops) if results.keys else []
    )
    tied = ((all_scores[:, 1:] == all_scores[:, :-1]) & mask[:, 1:]).any(axis=1)
    for place in np.flatnonzero(tied).tolist():
        found.first(place, results.k)
    return found, ends.tolist()


def _ids_and_keys(
    parts: Sequence[Part], owner: np.ndarray | None, rows: np.ndarray, with_keys: bool
) -> tuple[list[str], list[int]]:
    """Return the ids of rows (n,), each of the part that owns it, or all of the only one; and the keys if wanted."""
    if owner is None:
        return parts[0].ids_of(rows), parts[0].keys[rows].tolist() if with_keys else []
    ids, keys = [""] * len(rows), np.empty(len(rows), np.int64)
    for number, part in enumerate(parts):
        places = np.flatnonzero(owner == number)
        keys[places] = part.keys[rows[places]]
        for place, name in zip(places.tolist(), part.ids_of(rows[places]), strict=True):
            ids[place] = name
    return ids, keys.tolist() if with_keys else []


def _split(values: list[Any], stops: list[int]) -> list[list[Any]]:
    """Cut a list before each stop."""
    return [values[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def _ends(scores: np.ndarray, k: int) -> np.ndarray:
    """Return how many candidates of each query to name: k, and those that tie with the k-th."""
    if scores.shape[1] > k:
        ends = (scores >= scores[:, k - 1 : k]).sum(axis=1)
        return np.minimum(ends, np.isfinite(scores).sum(axis=1))
    return np.isfinite(scores).sum(axis=1)
