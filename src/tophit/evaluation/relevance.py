"""Which gallery items are relevant to a query, and how much: from labels, sets of labels, hierarchies or judgements."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
from scipy import sparse

from tophit.evaluation.inputs import encode_labels

Relevant = tuple[np.ndarray, np.ndarray]
"""The gallery indices of a query's relevant items, ascending, and their grades above 0."""
Mark = Literal["right", "near", "wrong"]
"""What a result is to its query: right, near (in a hierarchy: of the same parent), or neither."""


class Relevance:
    """Grades (Q, M) of gallery items for queries, made a query at a time: never all pairs at once.

    A grade of 0 means not relevant. Where the gallery is left out, the queries are the gallery, and whoever uses the
    grades leaves each query out of its own results. ``right_from`` (Q,) is the grade from which an item is right: in a
    hierarchy all of the query's levels, so that an item with some of them is only near; elsewhere any grade above 0.
    ``levels`` is the number of levels of a hierarchy, else 0.

    >>> Relevance.of_labels(["a", "b", "a"]).rows(0, 1)
    array([[1., 0., 1.]])
    >>> Relevance.of_paths(["bird/finch/robin", "bird/finch/siskin", "fish"]).rows(0, 1)
    array([[3., 2., 0.]])
    """

    def __init__(
        self,
        shape: tuple[int, int],
        of_query: Callable[[int], Relevant],
        right_from: np.ndarray | None = None,
        levels: int = 0,
    ) -> None:
        self.shape = shape
        self.right_from = np.zeros(shape[0]) if right_from is None else right_from
        self.levels = levels
        self.of_query = of_query
        """From a query's number to its relevant items and their grades."""

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the grades (stop - start, M) of queries from start up to stop, as floats."""
        found = np.zeros((stop - start, self.shape[1]))
        for row in range(start, stop):
            items, grades = self.of_query(row)
            found[row - start, items] = grades
        return found

    def is_right(self, query: int) -> np.ndarray:
        """Return which gallery items (M,) are right for a query."""
        return self._from_grade(query, self.right_from[query])

    def is_near(self, query: int) -> np.ndarray:
        """Return which gallery items (M,) share all but the last level of a query's path; without a hierarchy none."""
        if self.levels < 2:
            return np.zeros(self.shape[1], np.bool_)
        return self._from_grade(query, max(1.0, self.right_from[query] - 1)) & ~self.is_right(query)

    def _from_grade(self, query: int, least: float) -> np.ndarray:
        items, grades = self.of_query(query)
        found = np.zeros(self.shape[1], np.bool_)
        found[items[grades >= least]] = True
        return found

    def of_queries(self, chosen: np.ndarray) -> "Relevance":
        """Return the relevance for some of the queries, given by their numbers."""
        shape = len(chosen), self.shape[1]
        return Relevance(shape, lambda row: self.of_query(int(chosen[row])), self.right_from[chosen], self.levels)

    @classmethod
    def of_matrix(cls, grades: Any) -> "Relevance":
        """Return what a matrix of grades (Q, M) says: numbers of at least 0, or booleans."""
        matrix = np.asarray(grades)
        if matrix.ndim != 2 or not matrix.size:
            raise ValueError(f"relevance must be a matrix (queries, items), got shape {matrix.shape}")
        if matrix.dtype != np.bool_ and not (np.isfinite(matrix).all() and (matrix >= 0).all()):
            raise ValueError("grades of relevance must be finite numbers of at least 0")

        def of_query(row: int) -> Relevant:
            items = np.flatnonzero(matrix[row])
            return items, matrix[row, items].astype(np.float64)

        return cls((matrix.shape[0], matrix.shape[1]), of_query)

    @classmethod
    def of_labels(cls, labels: Sequence[Hashable], gallery: Sequence[Hashable] | None = None) -> "Relevance":
        """Return 1 for items with the query's label, else 0."""
        codes, others = encode_labels(labels, labels if gallery is None else gallery)
        members = _members(others)

        def of_query(row: int) -> Relevant:
            items = members(codes[row])
            return items, np.ones(len(items))

        return cls((len(codes), len(others)), of_query)

    @classmethod
    def of_sets(
        cls,
        labels: Sequence[Iterable[Hashable]],
        gallery: Sequence[Iterable[Hashable]] | None = None,
        jaccard: float | None = None,
    ) -> "Relevance":
        """Return 1 for items that share a label with the query, else 0; every image has several labels.

        With ``jaccard`` only those count whose shared labels are at least that share of the labels of both together.

        >>> Relevance.of_sets([{"red", "shoe"}, {"red", "hat"}, {"blue"}], jaccard=0.5).rows(0, 1)
        array([[1., 0., 0.]])
        """
        parts = labels, labels if gallery is None else gallery
        codes = {label: number for number, label in enumerate(dict.fromkeys(chain(*chain(*parts))))}
        own, others = (_incidence(part, codes) for part in parts)
        sizes, other_sizes = (np.diff(part.indptr) for part in (own, others))
        images = others.tocsc()  # column by column: the images of each label

        def of_query(row: int) -> Relevant:
            names = own.indices[own.indptr[row] : own.indptr[row + 1]]
            having = [images.indices[images.indptr[name] : images.indptr[name + 1]] for name in names]
            items, shared = np.unique(np.concatenate([*having, np.zeros(0, np.int32)]), return_counts=True)
            if jaccard is not None:
                items = items[shared >= jaccard * (sizes[row] + other_sizes[items] - shared)]
            return items.astype(np.int64), np.ones(len(items))

        return cls((len(sizes), len(other_sizes)), of_query)

    @classmethod
    def of_paths(
        cls,
        paths: Sequence[str | Sequence[Hashable]],
        gallery: Sequence[str | Sequence[Hashable]] | None = None,
    ) -> "Relevance":
        """Return how many levels of a hierarchy an item shares with the query, from the top: 0 to the path's length.

        A path is a text such as ``animal/bird/finch``, or a sequence of levels from the coarsest to the finest.
        """
        own, others = (_split(part) for part in (paths, paths if gallery is None else gallery))
        depth = max(map(len, (*own, *others)))
        codes: dict[Hashable, int] = {}
        mine, theirs = _codes_by_level(own, depth, codes, -1), _codes_by_level(others, depth, codes, -2)
        members = _members(theirs[0])

        def of_query(row: int) -> Relevant:
            items = members(mine[0, row])
            return items, 1.0 + (theirs[1:, items] == mine[1:, row, None]).sum(axis=0)

        return cls((len(own), len(others)), of_query, np.asarray([float(len(path)) for path in own]), depth)

    @classmethod
    def of_judgements(
        cls, judgements: Iterable[tuple[str, str, float]], queries: Sequence[str], items: Sequence[str]
    ) -> "Relevance":
        """Return the grades of a table of judgements (query, item, grade), as TREC's qrels have them; others are 0."""
        places = [{name: number for number, name in enumerate(names)} for names in (queries, items)]
        found: dict[int, dict[int, float]] = {}
        for query, item, grade in judgements:
            for name, known, what in ((query, places[0], "query"), (item, places[1], "item")):
                if name not in known:
                    raise ValueError(f"a judgement names the {what} {name!r}, which is not among the images")
            if not grade >= 0:
                raise ValueError(f"the grade of ({query!r}, {item!r}) must be at least 0, not {grade}")
            found.setdefault(places[0][query], {})[places[1][item]] = float(grade)

        def of_query(row: int) -> Relevant:
            known = sorted((item, grade) for item, grade in found.get(row, {}).items() if grade > 0)
            return np.asarray([item for item, _ in known], np.int64), np.asarray([grade for _, grade in known], float)

        return cls((len(queries), len(items)), of_query)


def _members(codes: np.ndarray) -> Callable[[int], np.ndarray]:
    """Return a function from a class number to the indices, ascending, of its items among ``codes`` (M,)."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]

    def of_class(code: int) -> np.ndarray:
        return order[np.searchsorted(ordered, code, "left") : np.searchsorted(ordered, code, "right")]

    return of_class


def _incidence(sets: Sequence[Iterable[Hashable]], codes: dict[Hashable, int]) -> sparse.csr_matrix:
    """Return which image (rows) has which label (columns)."""
    columns = [[codes[label] for label in dict.fromkeys(each)] for each in sets]
    ends = np.cumsum([0, *map(len, columns)])
    return sparse.csr_matrix((np.ones(ends[-1]), list(chain(*columns)), ends), (len(columns), len(codes)))


def _split(paths: Sequence[str | Sequence[Hashable]]) -> list[tuple[Hashable, ...]]:
    return [tuple(path.split("/")) if isinstance(path, str) else tuple(path) for path in paths]


def _codes_by_level(
    paths: Sequence[tuple[Hashable, ...]], depth: int, codes: dict[Hashable, int], missing: int
) -> np.ndarray:
    """Return a number for the beginning of each path down to each level (depth, N), kept in ``codes``.

    ``missing`` stands where a path ends before a level.
    """
    found = [
        [codes.setdefault(path[: level + 1], len(codes)) if level < len(path) else missing for path in paths]
        for level in range(depth)
    ]
    return np.asarray(found, np.int32).reshape(depth, len(paths))
