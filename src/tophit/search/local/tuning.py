"""Tuning an approximate index: the cheapest settings that reach the recall asked for, on the user's own vectors."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tophit.cancelling import check_cancelled
from tophit.search.exact import exact_scores, scan
from tophit.search.local.approximate import EXTRA, Approximate, Candidates
from tophit.search.local.threads import one_thread

SAMPLE = 800
_FACTORS = {"ivf": (1.0, 1.5, 3.0), "hnsw": (1.0, 1.5, 3.0), "pq": (2.0, 3.0, 6.0, 12.0, 24.0, 48.0)}
"""How many candidates to score exactly for each result: the coarser the numbers, the more."""
_STEP = 1.03
"""Between efforts that are tried. Larger steps would search harder than the recall needs."""
_TIMED, _LEAST_TIMED = 100, 8
_SECONDS = 0.5
"""A slow search is timed with fewer queries."""
_ROUNDS, _MOST_ROUNDS = 3, 10
_ENOUGH_SECONDS = 0.03
"""A fast search is timed more often, until its rounds have taken this long."""
_SPARE = 100
"""True neighbours looked for beyond 100, because some of them are held out too."""

Search = Callable[[np.ndarray, int], Candidates]


class Samples:
    """Vectors of the index as queries, with the scores of their true neighbours: one half to tune, one to measure.

    They are held out, as if they were not in the index: their own entries would make them too easy to find.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        self.count = min(SAMPLE, max(100, len(vectors) // 10), len(vectors) // 2)
        self.rows = np.sort(np.random.default_rng(1).choice(len(vectors), self.count, replace=False))
        self.others = np.ones(len(vectors), bool)
        self.others[self.rows] = False
        mixed = np.random.default_rng(2).permutation(self.rows)
        self.to_tune, self.to_measure = (_Sample(vectors, part, self.others) for part in np.array_split(mixed, 2))

    def times(self, search: Search) -> dict[str, float]:
        """Return the microseconds of one processor that a query of 10 results takes: alone, and among others."""
        queries, k = self.to_measure.queries[:_TIMED], 10 + EXTRA
        with one_thread():
            first = _least_seconds(lambda: search(queries[:1], k))
            queries = queries[: max(_LEAST_TIMED, round(_SECONDS / max(first, 1e-6)))]
            alone = _least_seconds(lambda: [search(queries[i : i + 1], k) for i in range(len(queries))])
            together = _least_seconds(lambda: search(queries, k))
        return {name: round(1e6 * s / len(queries), 1) for name, s in (("alone", alone), ("together", together))}


class _Sample:
    """Queries with the scores of their nearest vectors among the others, best first."""

    def __init__(self, vectors: np.ndarray, rows: np.ndarray, others: np.ndarray) -> None:
        check_cancelled()
        self.queries = np.ascontiguousarray(vectors[rows])
        near = scan(self.queries, vectors, min(100 + _SPARE, len(vectors)))
        scores = np.where(others[near], exact_scores(self.queries, vectors, near), -np.inf)
        self.scores = -np.sort(-scores, axis=1)[:, :100]

    def recall(self, search: Approximate, k: int, effort: int, factor: float) -> float:
        """Return the share of the k nearest that is among the best k; equal scores count."""
        check_cancelled()
        last = min(k, self.scores.shape[1])
        found = search.candidates(self.queries, k + EXTRA, effort, factor)
        is_good = (found.scores >= self.scores[:, last - 1 : last] - 1e-6) & (found.rows >= 0)
        return float((np.minimum(is_good.sum(axis=1), last) / last).mean())

    def seconds(self, search: Approximate, k: int, effort: int, factor: float) -> float:
        """Return the time that the queries take, of one processor."""
        some = self.queries[:_TIMED]
        with one_thread():
            return _least_seconds(lambda: search.candidates(some, k + EXTRA, effort, factor))


def tune(index: Any, kind: str, vectors: np.ndarray, samples: Samples, target: float) -> dict[str, Any]:
    """Return the cheapest settings that reach the target recall on one half of the samples, measured on the other."""
    search = Approximate(index, {}, vectors)
    if index.ntotal == len(vectors):  # a graph does not have the samples yet
        search.keep(samples.others)
    tuning: dict[str, Any] = {"target": target, "sample": samples.count}
    tuning["10"] = _tune_for(search, kind, samples, 10, target)
    tuning["100"] = _tune_for(search, kind, samples, 100, target) if len(vectors) > 100 else tuning["10"]
    return tuning


def _tune_for(search: Approximate, kind: str, samples: Samples, k: int, target: float) -> dict[str, Any]:
    options = [_least_effort(search, samples.to_tune, k, factor, target) for factor in _FACTORS[kind]]
    reached = [one for one in options if one["recall"] >= target]
    reached.sort(key=lambda one: samples.to_tune.seconds(search, k, one["effort"], one["factor"]))
    held = [_confirmed(search, samples.to_measure, k, options[-1], target)] if not reached else []
    for one in reached:
        held.append(_confirmed(search, samples.to_measure, k, one, target))
        if held[-1]["recall"] >= target:
            return held[-1]
    return max(held, key=lambda one: one["recall"])


def _confirmed(search: Approximate, sample: _Sample, k: int, found: dict[str, Any], target: float) -> dict[str, Any]:
    """Measure settings on another sample, with more effort if they do not reach the target there."""
    confirmed = _least_effort(search, sample, k, found["factor"], target, found["effort"])
    return {**confirmed, "recall": round(confirmed["recall"], 4)}


def _least_effort(
    search: Approximate, sample: _Sample, k: int, factor: float, target: float, least: int = 1
) -> dict[str, Any]:
    """Search the ladder of efforts, from the ``least`` on, by halves: recall grows with effort."""
    ladder = [effort for effort in _ladder(search, k, factor) if effort >= least]
    recalls: dict[int, float] = {}

    def recall(place: int) -> float:
        if place not in recalls:
            recalls[place] = sample.recall(search, k, ladder[place], factor)
        return recalls[place]

    low, high = 0, len(ladder) - 1
    if recall(low) >= target:
        high = low
    while low < high:
        middle = (low + high) // 2
        if recall(middle) >= target:
            high = middle
        else:
            low = middle + 1
    return {"effort": ladder[low], "factor": factor, "recall": recall(low)}


def _ladder(search: Approximate, k: int, factor: float) -> list[int]:
    """Return efforts to try, each a few percent above the one before."""
    least = 1 if search.is_ivf else math.ceil(factor * (k + EXTRA))
    steps = math.ceil(math.log(max(search.most_effort / least, 1), _STEP)) + 1
    return sorted({min(search.most_effort, round(least * _STEP**step)) for step in range(steps)})


def _least_seconds(run: Callable[[], object]) -> float:
    """Return the least processor time of some rounds: other programs can only add to it."""
    times: list[float] = []
    while len(times) < _ROUNDS or (len(times) < _MOST_ROUNDS and sum(times) < _ENOUGH_SECONDS):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times)
