"""Choosing and tuning a segment's FAISS index by measuring its recall on the user's own vectors."""

from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np

from tophit.errors import UsageError
from tophit.search.local.approximate import Approximate
from tophit.search.local.scan import exact_scores, scan

KINDS = ("auto", "flat", "ivf", "hnsw")
SAMPLE = 800
_FACTORS = (1, 2, 4)
_CHUNK = 65_536


@dataclass(frozen=True)
class Wish:
    """What the user wants: a kind of index, or auto; the recall@10 to reach; below how many vectors to be exact."""

    kind: str = "auto"
    recall: float = 0.98
    exact_below: int = 50_000

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"There is no kind of index '{self.kind}'; choices: {', '.join(KINDS)}.")
        if not 0 < self.recall <= 1:
            raise UsageError(f"recall is a share above 0 and up to 1, not {self.recall}.")

    def kind_for(self, count: int) -> str:
        """Choose the kind for so many vectors; a recall of 1 needs the exact one."""
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
    """Find the least effort that reaches the target recall on a sample, and measure it on a second, held one.

    The queries are vectors of the index; that each finds itself does not count.
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
