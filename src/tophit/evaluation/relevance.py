"""Which gallery items are relevant to a query, and how much: from labels, sets of labels, hierarchies or judgements."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from scipy import sparse

from tophit.evaluation.inputs import encode_labels


class Relevance:
    """Grades (Q, M) of gallery items for queries, made a few rows at a time: never all pairs at once.

    A grade of 0 means not relevant. Where the gallery is left out, the queries are the gallery, and whoever uses the
    grades leaves each query out of its own results.

    >>> Relevance.of_labels(["a", "b", "a"]).rows(0, 1)
    array([[1., 0., 1.]])
    >>> Relevance.of_paths(["bird/finch/robin", "bird/finch/siskin", "fish"]).rows(0, 1)
    array([[3., 2., 0.]])
    """

    def __init__(self, shape: tuple[int, int], rows: Callable[[int, int], np.ndarray]) -> None:
        self.shape = shape
        self._rows = rows

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the grades (stop - start, M) of queries from start up to stop, as floats."""
        return np.asarray(self._rows(start, stop), np.float64)

    @classmethod
    def of_matrix(cls, grades: Any) -> "Relevance":
        """Return what a matrix of grades (Q, M) says: numbers of at least 0, or booleans."""
        matrix = np.asarray(grades)
        if matrix.ndim != 2 or not matrix.size:
            raise ValueError(f"relevance must be a matrix (queries, items), got shape {matrix.shape}")
        if matrix.dtype != np.bool_ and not (np.isfinite(matrix).all() and (matrix >= 0).all()):
            raise ValueError("grades of relevance must be finite numbers of at least 0")
        return cls((matrix.shape[0], matrix.shape[1]), lambda start, stop: matrix[start:stop])

    @classmethod
    def of_labels(cls, labels: Sequence[Hashable], gallery: Sequence[Hashable] | None = None) -> "Relevance":
        """Return 1 for items with the query's label, else 0."""
        codes, others = encode_labels(labels, labels if gallery is None else gallery)
        return cls((len(codes), len(others)), lambda start, stop: codes[start:stop, None] == others)

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
        sizes, other_sizes = (np.asarray(part.sum(axis=1)).ravel() for part in (own, others))

        def rows(start: int, stop: int) -> np.ndarray:
            shared = (own[start:stop] @ others.T).toarray()
            if jaccard is None:
                return shared > 0
            together = sizes[start:stop, None] + other_sizes - shared
            return (shared > 0) & (shared >= jaccard * together)

        return cls((len(sizes), len(other_sizes)), rows)

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
        codes: dict[Hashable, int] = {}
        levels = [
            (_codes(own, level, codes, missing=-1), _codes(others, level, codes, missing=-2))
            for level in range(max(map(len, (*own, *others))))
        ]

        def rows(start: int, stop: int) -> np.ndarray:
            return np.sum([mine[start:stop, None] == theirs for mine, theirs in levels], axis=0)

        return cls((len(own), len(others)), rows)

    @classmethod
    def of_judgements(
        cls, judgements: Iterable[tuple[str, str, float]], queries: Sequence[str], items: Sequence[str]
    ) -> "Relevance":
        """Return the grades of a table of judgements (query, item, grade), as TREC's qrels have them; others are 0."""
        places = [{name: number for number, name in enumerate(names)} for names in (queries, items)]
        found: dict[tuple[int, int], float] = {}
        for query, item, grade in judgements:
            for name, known, what in ((query, places[0], "query"), (item, places[1], "item")):
                if name not in known:
                    raise ValueError(f"a judgement names the {what} {name!r}, which is not among the images")
            if not grade >= 0:
                raise ValueError(f"the grade of ({query!r}, {item!r}) must be at least 0, not {grade}")
            found[places[0][query], places[1][item]] = float(grade)
        numbers = np.asarray(list(found), np.int64).reshape(-1, 2)
        table = sparse.csr_matrix((list(found.values()), numbers.T), (len(queries), len(items)))
        return cls((len(queries), len(items)), lambda start, stop: table[start:stop].toarray())


def _incidence(sets: Sequence[Iterable[Hashable]], codes: dict[Hashable, int]) -> sparse.csr_matrix:
    """Return which image (rows) has which label (columns)."""
    columns = [[codes[label] for label in dict.fromkeys(each)] for each in sets]
    ends = np.cumsum([0, *map(len, columns)])
    return sparse.csr_matrix((np.ones(ends[-1]), list(chain(*columns)), ends), (len(columns), len(codes)))


def _split(paths: Sequence[str | Sequence[Hashable]]) -> list[tuple[Hashable, ...]]:
    return [tuple(path.split("/")) if isinstance(path, str) else tuple(path) for path in paths]


def _codes(paths: Sequence[tuple[Hashable, ...]], level: int, codes: dict[Hashable, int], missing: int) -> np.ndarray:
    """Return a number for the beginning of each path down to a level (N,); ``missing`` if a path ends before it."""
    known = (codes.setdefault(path[: level + 1], len(codes)) if level < len(path) else missing for path in paths)
    return np.fromiter(known, np.int64, len(paths))
