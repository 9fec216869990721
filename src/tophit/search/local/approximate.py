"""Approximate search of a segment: a FAISS index names candidates, which are then scored exactly.

How hard it searches is its effort: lists probed by IVF, candidates kept by HNSW. Which effort reaches the recall asked
for is measured when a segment is made (:mod:`tophit.search.local.tuning`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, cast

import faiss
import numpy as np

FAISS = cast("Any", faiss)
"""FAISS's stubs do not know what its Python side adds to the C++ classes."""

EXACT_ROWS = 50_000
"""A filtered search of up to this many allowed rows compares them all: recall 1, and no slower."""
EXTRA = 2
"""Candidates beyond k, so that ties at the end can be seen and the id decides."""

_SearchOne = Callable[[np.ndarray], tuple[list[float], list[int]]]


class Candidates(NamedTuple):
    """The nearest rows of each query with their exact scores, best first, (Q, k) each; row -1 for none."""

    scores: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class Allowed:
    """Some rows, ascending, of a part with ``total`` rows."""

    rows: np.ndarray
    total: int

    @property
    def are_many(self) -> bool:
        """Whether comparing them all would take longer than an approximate search."""
        return len(self.rows) > EXACT_ROWS

    @cached_property
    def selector(self) -> Any:
        """Tells FAISS which rows they are."""
        mask = np.zeros(self.total, bool)
        mask[self.rows] = True
        return _selector(mask)


class Approximate:
    """A FAISS index over the rows of a segment, with the efforts measured for 10 and 100 results."""

    def __init__(self, index: Any, tuning: dict[str, Any], vectors: np.ndarray) -> None:
        self.index = index
        self.tuning = tuning
        self.is_ivf = isinstance(index, faiss.IndexIVF)
        self.most_effort = index.nlist if self.is_ivf else 4096
        self._vectors = vectors  # the view has no reference of its own
        self._exact = _view(vectors, index.ntotal)
        self._refined = FAISS.IndexRefine(index, self._exact)
        self._refined.ntotal = len(vectors)  # rows up to here, of which a graph that is being built has only some
        self._live: Any = None
        self._live_count: int = index.ntotal
        self._params: dict[tuple[int, float], Any] = {}
        self._plans: dict[int, tuple[int, float]] = {}
        self._ones: dict[int, _SearchOne] = {}

    def keep(self, live: np.ndarray) -> None:
        """Leave out deleted rows."""
        self._live, self._live_count = _selector(live), int(live.sum())
        self._params.clear()
        self._plans.clear()
        self._ones.clear()

    def search_one(self, query: np.ndarray, k: int) -> tuple[list[float], list[int]] | None:
        """Return scores and rows of the k live rows nearest to one query (1, dim); None if fewer are found or some tie.

        The shortest way to FAISS and back, for one thread at a time.
        """
        search = self._ones.get(k)
        if search is None:
            search = self._ones[k] = self._one(k + EXTRA)
        scores, rows = search(query)
        if rows[-1] < 0 or len(set(scores)) < len(scores):
            return None
        del rows[k:], scores[k:]
        return scores, rows

    def search(self, queries: np.ndarray, k: int) -> Candidates:
        """Return k live rows for each query."""
        plan = self._plan_for(k)
        found = self.candidates(queries, k, *plan)
        short = np.flatnonzero(found.rows[:, -1] < 0)
        if len(short) and k <= self._live_count:  # where the neighbours are dead
            self._settle(queries, found, plan, self._live, short)
        return found

    def search_among(self, queries: np.ndarray, k: int, allowed: Allowed) -> Candidates:
        """Return k of the allowed rows for each query: search harder until the results stop changing.

        The allowed rows may be far from the query.
        """
        plan = self.plan(k, self.index.ntotal / len(allowed.rows))
        found = self._search(queries, k, self._parameters(*plan, allowed.selector))
        self._settle(queries, found, plan, allowed.selector, np.arange(len(queries)))
        return found

    def candidates(self, queries: np.ndarray, k: int, effort: int, factor: float) -> Candidates:
        """Return the best k of k * factor candidates for each query, searched with an effort."""
        return self._search(queries, k, self._live_parameters(effort, factor))

    def plan(self, k: int, rarity: float) -> tuple[int, float]:
        """Return the effort for k results, and how many times as many candidates to score exactly.

        Where one of r rows is allowed, the k nearest allowed ones lie among about the k * r nearest of all.
        """
        small, large = self.tuning["10"], self.tuning["100"]
        reach = max(k - EXTRA, 1) * rarity  # the caller asks for some more than it needs
        if reach <= 10:
            effort = small["effort"]
        elif reach <= 100:
            effort = small["effort"] + (large["effort"] - small["effort"]) * (reach - 10) / 90
        else:
            effort = large["effort"] * reach / 100
        # no fewer candidates for fewer results
        factor = small["factor"] * (10 + EXTRA) / k if k <= 10 + EXTRA else large["factor"]
        if "asked" not in self.tuning:  # an earlier version scored (k + 8) * factor
            factor *= 18 / (10 + EXTRA)
        least = 1 if self.is_ivf else math.ceil(factor * k)
        effort = math.ceil(round(effort, 1))  # a few deleted rows are no reason to search harder
        return min(max(effort, least), self.most_effort), factor

    def _settle(
        self, queries: np.ndarray, found: Candidates, plan: tuple[int, float], allowed: Any, unsure: np.ndarray
    ) -> None:
        """Search for the unsure queries with twice the effort until their results are complete and stop changing."""
        effort, factor = plan
        while len(unsure) and effort < self.most_effort:
            effort = min(2 * effort, self.most_effort)
            again = self._search(queries[unsure], found.rows.shape[1], self._parameters(effort, factor, allowed))
            changed = (again.rows != found.rows[unsure]).any(axis=1) | (again.rows[:, -1] < 0)
            found.rows[unsure], found.scores[unsure] = again.rows, again.scores
            unsure = unsure[changed]

    def _search(self, queries: np.ndarray, k: int, parameters: Any) -> Candidates:
        """Call FAISS itself.

        Its Python side takes a while to check and allocate, and faiss.contrib.torch_utils, which
        pytorch-metric-learning imports, replaces it by one that takes no parameters.
        """
        count = len(queries)
        found = Candidates(np.empty((count, k), np.float32), np.empty((count, k), np.int64))
        pointer = FAISS.swig_ptr
        self._refined.search_c(count, pointer(queries), k, pointer(found.scores), pointer(found.rows), parameters)
        return found

    def _one(self, k: int) -> _SearchOne:
        """Return what searches for one query, with all made ready that making takes as long as some searches."""
        scores, rows = np.empty(k, np.float32), np.empty(k, np.int64)
        search, pointer = self._refined.search_c, FAISS.swig_ptr
        places = pointer(scores), pointer(rows), self._live_parameters(*self._plan_for(k))

        def search_one(query: np.ndarray) -> tuple[list[float], list[int]]:
            search(1, pointer(query), k, *places)
            return scores.tolist(), rows.tolist()

        return search_one

    def _plan_for(self, k: int) -> tuple[int, float]:
        if k not in self._plans:
            self._plans[k] = self.plan(k, self.index.ntotal / self._live_count)
        return self._plans[k]

    def _live_parameters(self, effort: int, factor: float) -> Any:
        if (effort, factor) not in self._params:
            self._params[effort, factor] = self._parameters(effort, factor, self._live)
        return self._params[effort, factor]

    def _parameters(self, effort: int, factor: float, selector: Any) -> Any:
        if self.is_ivf:
            base = FAISS.SearchParametersIVF(nprobe=effort, sel=selector)
        else:
            base = FAISS.SearchParametersHNSW(efSearch=effort, sel=selector)
        return FAISS.IndexRefineSearchParameters(k_factor=factor, base_index_params=base)


def _view(vectors: np.ndarray, told: int) -> Any:
    """Return an exact index over vectors where they are, without a copy; they must stay there.

    It tells the number of vectors that FAISS expects, those of the index which it is to refine.
    """
    exact = FAISS.IndexFlatIP(vectors.shape[1])
    numbers = vectors.reshape(-1).view(np.uint8)
    exact.codes = FAISS.MaybeOwnedVectorUInt8.create_view(FAISS.swig_ptr(numbers), numbers.size, exact.codes.owner)
    exact.ntotal = told
    return exact


def _selector(mask: np.ndarray) -> Any:
    return FAISS.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
