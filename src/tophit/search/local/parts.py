"""Search over the parts of an index: segments and delta together."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from tophit.search.local.scan import exact_scores
from tophit.search.local.selection import Selection

_EXTRA = 8
"""Candidates beyond k, so that ties at the end can be seen and the id decides."""
_FEW = 4


class Part(Protocol):
    """Rows with ascending keys, vectors (N, dim) and ids; some may be dead: ``live`` is None if none is."""

    @property
    def live_count(self) -> int: ...  # noqa: D102

    @property
    def keys(self) -> np.ndarray: ...  # noqa: D102

    @property
    def vectors(self) -> np.ndarray: ...  # noqa: D102

    @property
    def live(self) -> np.ndarray | None: ...  # noqa: D102

    def id_of(self, row: int) -> str: ...  # noqa: D102

    def ids_of(self, rows: np.ndarray) -> list[str]: ...  # noqa: D102

    def search(self, queries: np.ndarray, k: int, rows: np.ndarray | None) -> np.ndarray: ...  # noqa: D102


class Found(NamedTuple):
    """The results of one query, best first."""

    scores: list[float]
    ids: list[str]
    keys: list[int]


def nearest(parts: Sequence[Part], queries: np.ndarray, k: int, selection: Selection | None) -> list[Found]:
    """Return the up to k nearest allowed rows of each query (Q, dim); equal scores in the order of ids."""
    allowed = [None if selection is None else selection.rows(part.keys, part.live) for part in parts]
    sizes = [part.live_count if rows is None else len(rows) for part, rows in zip(parts, allowed, strict=True)]
    chosen = [i for i, size in enumerate(sizes) if size]
    if not chosen:
        return [Found([], [], []) for _ in queries]
    some = [(parts[i], allowed[i]) for i in chosen]
    return _nearest(some, queries, k, _EXTRA, sum(sizes))


def _nearest(
    parts: Sequence[tuple[Part, np.ndarray | None]], queries: np.ndarray, k: int, extra: int, total: int
) -> list[Found]:
    """Collect each part's candidates, order them, and look further where more items tie than were fetched."""
    wanted = min(k + extra, total)
    rows = [part.search(queries, wanted, allowed) for part, allowed in parts]
    scores = [exact_scores(queries, part.vectors, r) for (part, _), r in zip(parts, rows, strict=True)]
    if len(queries) <= _FEW:
        found = [_named_one([part for part, _ in parts], rows, scores, query, k) for query in range(len(queries))]
        open_ends = [q for q, (_, ties) in enumerate(found) if ties >= wanted and wanted < total]
        for place in open_ends:
            again = _nearest(parts, queries[place : place + 1], k, 8 * extra, total)
            found[place] = (again[0], 0)
        return [result for result, _ in found]
    owner = np.repeat(np.arange(len(parts)), [r.shape[1] for r in rows])
    all_rows, all_scores = (each[0] if len(parts) == 1 else np.concatenate(each, axis=1) for each in (rows, scores))
    order = np.argsort(-all_scores, axis=1)[:, :wanted]
    all_scores = np.take_along_axis(all_scores, order, axis=1)
    all_rows = np.take_along_axis(all_rows, order, axis=1)
    owner = owner[order]
    found = _named([part for part, _ in parts], owner, all_rows, all_scores, k)
    if k < wanted < total:
        open_ends = np.flatnonzero((all_scores[:, k - 1] == all_scores[:, -1]) & np.isfinite(all_scores[:, -1]))
        if len(open_ends):
            again = _nearest(parts, queries[open_ends], k, 8 * extra, total)
            for place, result in zip(open_ends, again, strict=True):
                found[place] = result
    return found


def _named_one(
    parts: Sequence[Part], rows: Sequence[np.ndarray], scores: Sequence[np.ndarray], query: int, k: int
) -> tuple[Found, int]:
    """Do for one query in plain Python what :func:`_named` does for many: there it is faster.

    Return also how many candidates are as good as the k-th or better.
    """
    candidates = [
        (-score, number, row)
        for number in range(len(parts))
        for score, row in zip(scores[number][query].tolist(), rows[number][query].tolist(), strict=True)
        if row >= 0
    ]
    candidates.sort()
    end = min(k, len(candidates))
    while end < len(candidates) and candidates[end][0] == candidates[k - 1][0]:
        end += 1
    first = candidates[:end]
    scores = [-score for score, _, _ in first]
    ids = [parts[number].id_of(row) for _, number, row in first]
    keys = [int(parts[number].keys[row]) for _, number, row in first]
    found = Found(scores, ids, keys)
    if any(one == other for one, other in pairwise(scores)):
        found = _by_id_where_equal(found, k)
    return Found(found.scores[:k], found.ids[:k], found.keys[:k]), end


def _named(parts: Sequence[Part], owner: np.ndarray, rows: np.ndarray, scores: np.ndarray, k: int) -> list[Found]:
    """Turn ordered candidates (Q, C) into the first k results with ids, those that tie in the order of ids."""
    ends = _ends(scores, k)
    mask = np.arange(rows.shape[1]) < ends[:, None]
    flat_rows, flat_owner, flat_scores = rows[mask], owner[mask], scores[mask]
    if len(parts) == 1:
        ids, keys = parts[0].ids_of(flat_rows), parts[0].keys[flat_rows]
    else:
        ids, keys = [""] * len(flat_rows), np.empty(len(flat_rows), np.int64)
        for number, part in enumerate(parts):
            places = np.flatnonzero(flat_owner == number)
            keys[places] = part.keys[flat_rows[places]]
            for place, name in zip(places.tolist(), part.ids_of(flat_rows[places]), strict=True):
                ids[place] = name
    all_scores, all_keys = flat_scores.tolist(), keys.tolist()
    stops = np.cumsum(ends).tolist()
    found = [
        Found(all_scores[start:stop], ids[start:stop], all_keys[start:stop])
        for start, stop in zip([0, *stops], stops, strict=False)
    ]
    tied = ((scores[:, 1:] == scores[:, :-1]) & mask[:, 1:]).any(axis=1)
    for place in np.flatnonzero(tied):
        found[place] = _by_id_where_equal(found[place], k)
    return found


def _by_id_where_equal(found: Found, k: int) -> Found:
    """Return the first k results, equal scores in the order of ids."""
    ordered = sorted(zip(*found, strict=True), key=lambda one: (-one[0], one[1]))[:k]
    return Found([one[0] for one in ordered], [one[1] for one in ordered], [one[2] for one in ordered])


def _ends(scores: np.ndarray, k: int) -> np.ndarray:
    """Return how many candidates of each query to name: k, and those that tie with the k-th."""
    if scores.shape[1] > k:
        ends = (scores >= scores[:, k - 1 : k]).sum(axis=1)
        return np.minimum(ends, np.isfinite(scores).sum(axis=1))
    return np.isfinite(scores).sum(axis=1)
