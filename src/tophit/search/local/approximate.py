"""Search of a segment through a FAISS index: it names candidates, which are then scored exactly.

How hard it looks (its effort: lists probed of IVF, candidates kept of HNSW) was measured when the segment was made.
"""

import math
from typing import Any, cast

import faiss
import numpy as np

_FAISS = cast("Any", faiss)
"""FAISS's stubs do not know what its Python side adds to the C++ classes."""

EXACT_ROWS = 50_000
"""Up to so many allowed rows a filtered search compares them all: recall 1, and no slower."""


class Approximate:
    """A FAISS index over the rows of a segment, with the efforts measured for 10 and 100 results."""

    def __init__(self, index: Any, tuning: dict[str, Any]) -> None:
        self.index = index
        self.tuning = tuning
        self.is_ivf = isinstance(index, faiss.IndexIVF)
        self.most_effort = index.nlist if self.is_ivf else 4096
        self._live: Any = None
        self._live_count: int = index.ntotal
        self._params: dict[int, Any] = {}

    def keep(self, live: np.ndarray) -> None:
        """Leave out the rows that are not alive."""
        self._live, self._live_count = _selector(live), int(live.sum())
        self._params.clear()

    def can_search(self, rows: np.ndarray | None) -> bool:
        """Say whether this is better than an exact scan of the allowed rows.

        Not if they are few; and not with HNSW: its walk gets lost where most neighbours are not allowed.
        """
        return rows is None or (self.is_ivf and len(rows) > EXACT_ROWS)

    def search(self, queries: np.ndarray, k: int, rows: np.ndarray | None) -> np.ndarray:
        """Return at least k candidates' rows for each query; -1 for none. All live ones, or some rows, are searched."""
        allowed = self._live_count if rows is None else len(rows)
        effort, candidates = self._plan(k, self.index.ntotal / allowed)
        count = min(candidates, allowed)
        if rows is not None:
            return self._filtered(queries, effort, count, rows)
        found = self.candidates(queries, effort, count)
        if found[:, -1].min(initial=0) < 0:  # where the neighbours are dead
            self._settle(queries, found, effort, self._live, np.flatnonzero(found[:, -1] < 0))
        return found

    def candidates(self, queries: np.ndarray, effort: int, count: int) -> np.ndarray:
        """Return so many candidates' rows for each query, looked for with an effort."""
        if effort not in self._params:
            self._params[effort] = self._parameters(effort, self._live)
        return self._search(queries, min(count, self.index.ntotal), self._params[effort])

    def _filtered(self, queries: np.ndarray, effort: int, count: int, rows: np.ndarray) -> np.ndarray:
        """Look harder until the results stop changing: the allowed rows may be far from the query."""
        mask = np.zeros(self.index.ntotal, bool)
        mask[rows] = True
        allowed = _selector(mask)
        found = self._search(queries, count, self._parameters(effort, allowed))
        self._settle(queries, found, effort, allowed, np.arange(len(queries)))
        return found

    def _settle(self, queries: np.ndarray, found: np.ndarray, effort: int, allowed: Any, unsure: np.ndarray) -> None:
        """Search for the unsure queries with twice the effort until their candidates are complete and stop changing."""
        while len(unsure) and effort < self.most_effort:
            effort = min(2 * effort, self.most_effort)
            again = self._search(queries[unsure], found.shape[1], self._parameters(effort, allowed))
            changed = (again != found[unsure]).any(axis=1) | (again[:, -1] < 0)
            found[unsure] = again
            unsure = unsure[changed]

    def _search(self, queries: np.ndarray, count: int, parameters: Any) -> np.ndarray:
        # faiss.contrib.torch_utils, which pytorch-metric-learning imports, puts a search without parameters in the
        # place of FAISS's own and keeps that under another name.
        search = getattr(self.index, "search_numpy", self.index.search)
        return search(queries, count, params=parameters)[1]

    def _plan(self, k: int, rarity: float) -> tuple[int, int]:
        """Return effort and number of candidates for k results.

        Where one of r rows is allowed, the k nearest allowed ones lie among about the k * r nearest of all.
        """
        small, large = self.tuning["10"], self.tuning["100"]
        reach = max(k - 8, 1) * rarity  # the caller asks for 8 more than it needs
        if reach <= 10:
            effort = small["effort"]
        elif reach <= 100:
            effort = small["effort"] + (large["effort"] - small["effort"]) * (reach - 10) / 90
        else:
            effort = large["effort"] * reach / 100
        factor = small["factor"] if k <= 18 else large["factor"]
        candidates = factor * k
        least = 1 if self.is_ivf else candidates
        effort = math.ceil(round(effort, 1))  # a few dead rows are no reason to look harder
        return min(max(effort, least), self.most_effort), candidates

    def _parameters(self, effort: int, selector: Any) -> Any:
        if self.is_ivf:
            return _FAISS.SearchParametersIVF(nprobe=effort, sel=selector)
        return _FAISS.SearchParametersHNSW(efSearch=effort, sel=selector)


def _selector(mask: np.ndarray) -> Any:
    return _FAISS.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
