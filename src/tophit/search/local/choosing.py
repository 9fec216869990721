"""Choosing the kind of index: candidates are built and measured on the user's own vectors, within a budget.

A kind that needs more memory than allowed is not built. Of the others, the one whose queries take the least time at
the recall asked for is chosen. A graph takes long to build, so it is first tried on a part of the vectors: it is left
out if it is slower there already than the best so far is on all, or if building it would take too long.
"""

import math
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from tophit.search.local.approximate import Approximate
from tophit.search.local.budget import LocalOptions
from tophit.search.local.building import Lists, add_rows, build_graph, bytes_of, suit_centres
from tophit.search.local.comparing import compared
from tophit.search.local.tuning import Samples, tune
from tophit.wording import readable_bytes

LEAST = 100
"""Fewer vectors than these are too few to measure with."""
TRIAL = 20_000
"""Vectors that a graph is tried on before it is built."""


@dataclass(frozen=True)
class Choice:
    """A kind of index with what was measured; ``index`` is None where all vectors are compared."""

    kind: str
    index: Any
    tuning: dict[str, Any]


def exact_limit(options: LocalOptions) -> int:
    """Return with how many vectors a kind of index begins to be chosen; fewer are all compared."""
    return max(options.exact_below, LEAST)


def is_exact(count: int, options: LocalOptions) -> bool:
    """Return whether all vectors are compared without a choice: they are few, or nothing else is good enough."""
    return count < exact_limit(options) or options.recall == 1 or options.kind == "flat"


def choose(vectors: np.ndarray, options: LocalOptions, before: Choice | None = None) -> Choice:
    """Return the index for vectors (N, dim): of the kind asked for, or the best by measurement.

    Where a choice from ``before`` still holds, only its kind is built and tuned.
    """
    count, dim = vectors.shape
    if is_exact(count, options):
        return Choice("flat", None, {})
    chooser = _Chooser(vectors, options)
    if before is not None and still_holds(before, options, count):
        chooser.try_kind(before.kind, again=True)
        return chooser.best(before.tuning)
    kinds = ["flat", "ivf", "pq", "hnsw"] if options.kind == "auto" else [options.kind]
    fitting = [kind for kind in kinds if bytes_of(kind, count, dim) <= options.most_bytes]
    for kind in kinds:
        if kind in fitting or len(kinds) == 1:
            chooser.try_kind(kind)
        else:
            chooser.leave_out(
                kind,
                f"needs {readable_bytes(bytes_of(kind, count, dim))} of {readable_bytes(options.most_bytes)} memory",
            )
    if not fitting and len(kinds) > 1:
        chooser.try_kind("ivf")  # its lists are mapped from the disk, so it works with any memory, if slowly
    return chooser.best()


def still_holds(before: Choice, options: LocalOptions, count: int) -> bool:
    """Return whether the same was asked for, of about as many vectors: at most twice as many, at least half."""
    if (before.tuning.get("asked"), before.tuning.get("target")) != (options.asked(), options.recall):
        return False
    measured_at = before.tuning.get("measured at", 0)
    return measured_at / 2 <= count <= 2 * measured_at


class _Chooser:
    def __init__(self, vectors: np.ndarray, options: LocalOptions) -> None:
        self.vectors, self.options = vectors, options
        self.start = monotonic()
        self.samples = Samples(vectors)
        self.lists: Lists | None = None
        self.choices: list[Choice] = []
        self.measured: list[dict[str, Any]] = []

    def leave_out(self, kind: str, reason: str) -> None:
        self.measured.append({"kind": kind, "left out": reason})

    def try_kind(self, kind: str, again: bool = False) -> None:
        """Build and measure a kind, unless it can't win or would take too long; one that was chosen before is built."""
        left = self.options.most_seconds - (monotonic() - self.start)
        if kind == "flat":
            self._measure("flat", None, 0.0, self.samples, self.vectors)
            return
        if self._any_approximate() and left <= 0:
            self.leave_out(kind, f"the {self.options.most_seconds:.0f} s for building are over")
            return
        if kind == "hnsw" and self.options.kind == "auto" and not (again or self._graph_is_worth_it(left)):
            return
        start = monotonic()
        if kind == "hnsw":
            index = build_graph(self.vectors, np.flatnonzero(self.samples.others))
        else:
            if self.lists is None:
                self.lists = Lists(self.vectors)
            index = self.lists.build(kind)
        self._measure(kind, index, monotonic() - start, self.samples, self.vectors)

    def best(self, before: dict[str, Any] | None = None) -> Choice:
        """Return the fastest of those that reach the recall; if none does, the one that comes nearest.

        What was measured is kept with it; of an earlier choice that still holds, what was measured then.
        """
        reached = [one for one in self.choices if one.tuning["10"]["recall"] >= self.options.recall]
        if reached:
            best = min(reached, key=lambda one: _cost(one.tuning["microseconds"]))
        else:
            best = max(self.choices, key=lambda one: one.tuning["10"]["recall"])
        kept = before or {"measured": self.measured, "measured at": len(self.vectors)}
        tuning = {"asked": self.options.asked(), **best.tuning}
        return Choice(best.kind, best.index, tuning | {key: kept[key] for key in ("measured", "measured at")})

    def _any_approximate(self) -> bool:
        return any(one.index is not None for one in self.choices)

    def _measure(
        self, kind: str, index: Any, seconds: float, samples: Samples, vectors: np.ndarray, keep: bool = True
    ) -> Choice:
        target = self.options.recall
        if index is None:
            all_of_them = {"effort": len(vectors), "factor": 1, "recall": 1.0}
            tuning: dict[str, Any] = {"target": target, "sample": samples.count, "10": all_of_them, "100": all_of_them}
            microseconds = samples.times(lambda queries, k: compared(queries, vectors, k))
        else:
            tuning = tune(index, kind, vectors, samples, target)
            if kind in ("ivf", "pq"):
                suit_centres(index, tuning["10"]["effort"])
            if kind == "hnsw":  # linked to their neighbours, the samples would have been too easy to find
                add_rows(index, vectors, samples.rows)
            microseconds = samples.times(Approximate(index, {"asked": {}, **tuning}, vectors).search)
        choice = Choice(kind, index, {**tuning, "microseconds": microseconds})
        if keep:
            self.choices.append(choice)
            self.measured.append(
                {
                    "kind": kind,
                    "recall@10": tuning["10"]["recall"],
                    "microseconds": microseconds,
                    "memory": bytes_of(kind, *vectors.shape),
                    "build seconds": round(seconds, 1),
                }
            )
        return choice

    def _graph_is_worth_it(self, seconds_left: float) -> bool:
        """Try a graph on some of the vectors; note why it is left out."""
        count = len(self.vectors)
        if not self._any_approximate() or count < 2 * TRIAL:
            return True
        chosen = np.sort(np.random.default_rng(2).choice(count, TRIAL, replace=False))
        some = np.ascontiguousarray(self.vectors[chosen])
        samples = Samples(some)
        start = monotonic()
        index = build_graph(some, np.flatnonzero(samples.others))
        took = monotonic() - start
        trial = self._measure("hnsw", index, took, samples, some, keep=False)
        microseconds, best = trial.tuning["microseconds"], self.best()
        if best.tuning["10"]["recall"] >= self.options.recall and _cost(microseconds) > _cost(
            best.tuning["microseconds"]
        ):
            told = f"{microseconds['alone']} microseconds alone on {TRIAL:,} of the vectors"
            self.leave_out("hnsw", f"slower than {best.kind}: {told}")
            return False
        expected = 2 * took * count / TRIAL * math.log(count) / math.log(TRIAL)  # twice: it outgrows the caches
        if expected > seconds_left:
            self.leave_out(
                "hnsw", f"would take about {expected:.0f} s to build, of {max(seconds_left, 0):.0f} s that are left"
            )
            return False
        return True


def _cost(microseconds: dict[str, float]) -> float:
    """Return one number for the time of a query, alone and among others: their geometric mean."""
    return math.sqrt(max(microseconds["alone"], 0.1) * max(microseconds["together"], 0.1))
