"""Search over the parts of an index: segments and delta together."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np

from tophit.cancelling import check_cancelled
from tophit.search.local.approximate import EXTRA, Allowed, Candidates
from tophit.search.local.selecting import Selection

if TYPE_CHECKING:
    from tophit.search.local.delta import Delta
    from tophit.search.local.segment import Segment

Part: TypeAlias = "Segment | Delta"
"""Rows with ascending keys, vectors and ids; ``live`` tells which rows are not deleted, None if no row is."""
Texts = Callable[[Sequence[int]], list[str]]
"""Reads the metadata of items, as JSON, by their keys."""
_MOST_TIES = 1_000_000
"""Candidates that tie, of all queries that are looked at together: an index may hold one picture very often."""
_Value = TypeVar("_Value")


class Found(NamedTuple):
    """The results of queries, best first: a list for each query. ``texts`` is empty if metadata was not asked for.

    Lists of numbers and strings instead of one object per result: with many queries, those would cost as much as the
    search.
    """

    scores: list[list[float]]
    ids: list[list[str]]
    texts: list[list[str]]

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
    parts: Sequence[Part], queries: np.ndarray, k: int, selection: Selection | None, texts: Texts | None
) -> Found:
    """Return the up to k nearest allowed rows of each query (Q, dim); equal scores in the order of ids.

    ``texts`` reads metadata that a part does not have itself; without it, none is returned.
    """
    chosen: list[tuple[Part, Allowed | None]] = []
    total = 0
    for part in parts:
        allowed = None if selection is None else selection.allowed(part)
        count = part.live_count if allowed is None else len(allowed.rows)
        if count:
            chosen.append((part, allowed))
            total += count
    if not chosen:
        return Found(*([[] for _ in queries] for _ in range(3)))
    return _Searching(chosen, k, total, texts).search(queries, EXTRA)


class _Searching(NamedTuple):
    """What stays the same while a search goes farther: the parts and their allowed rows, k, and all there is."""

    parts: list[tuple[Part, Allowed | None]]
    k: int
    total: int
    texts: Texts | None

    def search(self, queries: np.ndarray, extra: int) -> Found:
        """Collect each part's candidates, order them, and search further where more items tie than were fetched."""
        check_cancelled()
        wanted = min(self.k + extra, self.total)
        each = [part.search(queries, wanted, allowed) for part, allowed in self.parts]
        if len(each) == 1:
            owners, (merged,) = None, each
        else:
            owners, merged = _merged(each)
        plain = self._plain(merged) if owners is None else None
        if plain is not None:
            return plain
        found, ties = self._named(owners, merged)
        open_ends = (
            [place for place, count in enumerate(ties) if count >= wanted] if self.k < wanted < self.total else []
        )
        step = max(1, _MOST_TIES // (self.k + 16 * extra))
        for start in range(0, len(open_ends), step):
            some = open_ends[start : start + step]
            again = self.search(queries[some], 16 * extra)
            for at, place in enumerate(some):
                found.put(place, again, at)
        return found

    def _plain(self, merged: Candidates) -> Found | None:
        """Name the first k candidates of each query; None unless there are more than k and the first do not tie."""
        part, k = self.parts[0][0], self.k
        if merged.rows.shape[1] <= k:
            return None
        if len(merged.rows) == 1:  # plain Python is faster
            (scores,), (rows,) = merged.scores.tolist(), merged.rows.tolist()
            if rows[k] < 0 or len(set(scores[: k + 1])) <= k:
                return None
            del scores[k:], rows[k:]
            return Found([scores], [part.few_ids_of(rows)], [] if self.texts is None else [self._texts_of(part, rows)])
        first = merged.rows[:, :k]
        if (merged.rows[:, k] < 0).any() or (merged.scores[:, 1 : k + 1] >= merged.scores[:, :k]).any():
            return None
        ids = part.ids_of(first.ravel())
        texts = [] if self.texts is None else [self._texts_of(part, rows) for rows in first.tolist()]
        return Found(merged.scores[:, :k].tolist(), [ids[i : i + k] for i in range(0, len(ids), k)], texts)

    def _named(self, owners: np.ndarray | None, merged: Candidates) -> tuple[Found, list[int]]:
        """Turn candidates (Q, C), best first, into the first k results with ids, those that tie in the order of ids.

        Return also how many candidates of each query are as good as its k-th or better.
        """
        scores = merged.scores
        ends = _ends(merged, self.k)
        mask = np.arange(scores.shape[1]) < ends[:, None]
        ids, texts = self._ids_and_texts(None if owners is None else owners[mask], merged.rows[mask])
        stops = np.cumsum(ends).tolist()
        found = Found(_split(scores[mask].tolist(), stops), _split(ids, stops), _split(texts, stops) if texts else [])
        if self.texts is not None and not texts:
            found.texts.extend([] for _ in stops)
        tied = ((scores[:, 1:] == scores[:, :-1]) & mask[:, 1:]).any(axis=1)
        for place in np.flatnonzero(tied).tolist():
            found.first(place, self.k)
        return found, ends.tolist()

    def _ids_and_texts(self, owners: np.ndarray | None, rows: np.ndarray) -> tuple[list[str], list[str]]:
        """Return ids and, if wanted, metadata of rows (n,), each of the part that owns it, or all of the only one."""
        if owners is None:
            part = self.parts[0][0]
            return part.ids_of(rows), [] if self.texts is None else self._texts_of(part, rows.tolist())
        ids, texts = [""] * len(rows), [""] * len(rows) if self.texts is not None else []
        for number, (part, _) in enumerate(self.parts):
            places = np.flatnonzero(owners == number)
            for place, name in zip(places.tolist(), part.ids_of(rows[places]), strict=True):
                ids[place] = name
            if texts:
                for place, text in zip(places.tolist(), self._texts_of(part, rows[places].tolist()), strict=True):
                    texts[place] = text
        return ids, texts

    def _texts_of(self, part: Part, rows: list[int]) -> list[str]:
        own = part.texts_of(rows)
        if own is not None:
            return own
        assert self.texts is not None
        return self.texts(part.keys[rows].tolist())


def _merged(each: Sequence[Candidates]) -> tuple[np.ndarray, Candidates]:
    """Return the candidates of several parts (Q, C) as one list for each query, best first, and whose each is."""
    scores = np.concatenate([one.scores for one in each], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")
    rows = np.take_along_axis(np.concatenate([one.rows for one in each], axis=1), order, axis=1)
    owners = np.repeat(np.arange(len(each)), [one.rows.shape[1] for one in each])[order]
    return owners, Candidates(np.take_along_axis(scores, order, axis=1), rows)


def _split(values: list[_Value], stops: list[int]) -> list[list[_Value]]:
    """Cut a list before each stop."""
    return [values[start:stop] for start, stop in zip([0, *stops], stops, strict=False)]


def _ends(found: Candidates, k: int) -> np.ndarray:
    """Return how many candidates of each query to name: k, and those that tie with the k-th."""
    there = (found.rows >= 0).sum(axis=1)
    if found.scores.shape[1] <= k:
        return there
    return np.minimum((found.scores >= found.scores[:, k - 1 : k]).sum(axis=1), there)
