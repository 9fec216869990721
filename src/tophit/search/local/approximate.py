"""Approximate search of a segment: a FAISS index names candidates, which are then scored exactly.

How hard it searches is its effort: lists probed by IVF, candidates kept by HNSW. When a segment is made, :func:`tune`
measures on the user's own vectors which effort reaches the recall asked for.
"""

import math
from dataclasses import dataclass
from typing import Any, cast

import faiss
import numpy as np

from tophit.errors import UsageError
from tophit.search.exact import exact_scores, scan

_FAISS = cast("Any", faiss)
"""FAISS's stubs do not know what its Python side adds to the C++ classes."""

EXACT_ROWS = 50_000
"""A filtered search of up to this many allowed rows compares them all: recall 1, and no slower."""


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
        """Leave out deleted rows."""
        self._live, self._live_count = _selector(live), int(live.sum())
        self._params.clear()

    def can_search(self, rows: np.ndarray | None) -> bool:
        """Return whether this is better than an exact scan of the allowed rows.

        It is not for few rows, and not with HNSW: its walk gets lost where most neighbours are not allowed.
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
        """Return the rows of ``count`` candidates for each query, searched with an effort."""
        if effort not in self._params:
            self._params[effort] = self._parameters(effort, self._live)
        return self._search(queries, min(count, self.index.ntotal), self._params[effort])

    def _filtered(self, queries: np.ndarray, effort: int, count: int, rows: np.ndarray) -> np.ndarray:
        """Search harder until the results stop changing: the allowed rows may be far from the query."""
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
        effort = math.ceil(round(effort, 1))  # a few deleted rows are no reason to search harder
        return min(max(effort, least), self.most_effort), candidates

    def _parameters(self, effort: int, selector: Any) -> Any:
        if self.is_ivf:
            return _FAISS.SearchParametersIVF(nprobe=effort, sel=selector)
        return _FAISS.SearchParametersHNSW(efSearch=effort, sel=selector)


def _selector(mask: np.ndarray) -> Any:
    return _FAISS.IDSelectorBitmap(np.packbits(mask, bitorder="little"))


KINDS = ("auto", "flat", "ivf", "hnsw")
SAMPLE = 800
_FACTORS = (1, 2, 4)
_CHUNK = 65_536


@dataclass(frozen=True)
class LocalOptions:
    """The options of a local index: its kind, the recall@10 to reach, and below how many vectors it is exact."""

    kind: str = "auto"
    recall: float = 0.98
    exact_below: int = 50_000

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"There is no kind of index '{self.kind}'; choices: {', '.join(KINDS)}.")
        if not 0 < self.recall <= 1:
            raise UsageError(f"recall is a share above 0 and up to 1, not {self.recall}.")

    def kind_for(self, count: int) -> str:
        """Return the kind for a number of vectors; a recall of 1 needs the exact one."""
        if count < self.exact_below or self.recall == 1:
            return "flat"
        return "ivf" if self.kind == "auto" else self.kind


def build(vectors: np.ndarray, kind: str) -> Any:
    """Train a FAISS index and fill it with the rows of vectors (N, dim)."""
    count, dim = vectors.shape
    # 8 bits a number; a list has some 200 vectors, and k-means sees 40 a list.
    lists = max(1, min(2 ** round(np.log2(3 * np.sqrt(count))), count // 39))
    index: Any = faiss.index_factory(
        dim, f"IVF{lists},SQ8" if kind == "ivf" else "HNSW32,SQ8", faiss.METRIC_INNER_PRODUCT
    )
    if kind == "ivf":
        index.cp.max_points_per_centroid = 40
        index.cp.min_points_per_centroid = 1
    else:
        index.hnsw.efConstruction = 100
    random = np.random.default_rng(0)
    chosen = np.sort(random.choice(count, min(count, max(40 * lists, 20_000)), replace=False))
    index.train(np.ascontiguousarray(vectors[chosen]))
    for start in range(0, count, _CHUNK):
        index.add(np.ascontiguousarray(vectors[start : start + _CHUNK]))
    return index


def tune(index: Any, vectors: np.ndarray, target: float) -> dict[str, Any]:
    """Find the least effort that reaches the target recall on a sample, and measure it on a second sample.

    The queries are vectors of the index; finding itself does not count.
    """
    search = Approximate(index, {})
    random = np.random.default_rng(1)
    sample = random.choice(len(vectors), min(SAMPLE, len(vectors)), replace=False)
    halves = [_Sample(vectors, part) for part in np.array_split(sample, 2)]
    tuning: dict[str, Any] = {"target": target, "sample": len(sample)}
    for k in (10, 100):
        if k == 100 and len(vectors) <= 101:
            tuning["100"] = tuning["10"]
            break
        tuning[str(k)] = _tune_for(search, halves, k, target)
    return tuning


class _Sample:
    """Queries with the score of their true k-th neighbour."""

    def __init__(self, vectors: np.ndarray, rows: np.ndarray) -> None:
        self.vectors = vectors
        self.queries = np.ascontiguousarray(vectors[rows])
        near = scan(self.queries, vectors, min(101, len(vectors)))
        self.scores = -np.sort(-exact_scores(self.queries, vectors, near), axis=1)

    def recall(self, search: Approximate, k: int, effort: int, candidates: int) -> float:
        """Return the share of the k nearest that is among the best k after exact scoring; equal scores count."""
        rows = search.candidates(self.queries, effort, candidates)
        scores = exact_scores(self.queries, self.vectors, rows)
        k = min(k, self.scores.shape[1] - 1)
        found = (scores >= self.scores[:, k : k + 1] - 1e-6).sum(axis=1)  # one of them is the query itself
        return float((np.clip(found - 1, 0, k) / k).mean())


def _tune_for(search: Approximate, halves: list[_Sample], k: int, target: float) -> dict[str, Any]:
    options = [_least_effort(search, halves[0], k, factor, target) for factor in _FACTORS]
    reached = [one for one in options if one["recall"] >= target]
    best = min(reached, key=lambda one: one["cost"]) if reached else max(options, key=lambda one: one["recall"])
    ladder = _ladder(search, k, best["factor"])
    place = ladder.index(best["effort"])
    held = halves[1].recall(search, k, best["effort"], best["factor"] * (k + 8))
    while held < target and place + 1 < len(ladder):
        place += 1
        held = halves[1].recall(search, k, ladder[place], best["factor"] * (k + 8))
    return {"effort": ladder[place], "factor": best["factor"], "recall": round(held, 4)}


def _least_effort(search: Approximate, sample: _Sample, k: int, factor: int, target: float) -> dict[str, Any]:
    """Search the ladder of efforts by halves: recall grows with effort."""
    ladder, candidates = _ladder(search, k, factor), factor * (k + 8)
    low, high = 0, len(ladder) - 1
    while low < high:
        middle = (low + high) // 2
        if sample.recall(search, k, ladder[middle], candidates) >= target:
            high = middle
        else:
            low = middle + 1
    effort = ladder[low]
    scanned = effort * search.index.ntotal / search.most_effort if search.is_ivf else effort * 32
    return {
        "effort": effort,
        "factor": factor,
        "recall": sample.recall(search, k, effort, candidates),
        "cost": scanned + 8 * candidates,  # an exact score reads four times the bytes, from anywhere
    }


def _ladder(search: Approximate, k: int, factor: int) -> list[int]:
    """Return efforts to try, each about an eighth above the one before."""
    least = 1 if search.is_ivf else factor * (k + 8)
    efforts = {min(search.most_effort, round(least * 1.125**step)) for step in range(100)}
    return sorted(efforts)
