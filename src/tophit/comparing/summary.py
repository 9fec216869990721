"""The result of a comparison: one row per candidate, ranks with ties, and a recommendation in one sentence."""

import shlex
import statistics
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from tophit.comparing.plan import Plan, any_recipe
from tophit.comparing.statistics import ClassTable, Estimate, class_table, estimate
from tophit.comparing.store import UNTRAINED, Store
from tophit.comparing.verdicts import Word, judge_pairs, ranks
from tophit.data.feature_files import SUFFIX
from tophit.errors import TophitError
from tophit.tables import as_html, as_text
from tophit.wording import counted


@dataclass(frozen=True)
class Row:
    """One candidate: its metrics with intervals over seeds and classes, its rank and its costs."""

    name: str
    note: str
    baseline: bool
    rank: int
    metrics: dict[str, Estimate]
    difference: Estimate | None  # to the best baseline, its interval adjusted too; None for the best baseline itself
    adjusted_p: float | None  # of the difference, adjusted for the number of all pairs
    verdict: Word | None  # whether it is better than the best baseline
    detectable: float | None  # the smallest true difference that would have been found with a probability of 80%
    settings: dict[str, Any]
    seconds: float  # per run, the median over seeds
    processor_seconds: float
    peak_memory: int  # bytes, the largest of the seeds


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of a comparison."""

    title: str
    metric: str
    seeds: int
    queries: int
    classes: int
    best_baseline: str | None
    rows: list[Row]  # best first
    failed: dict[str, str]  # error by candidate
    recommendation: str
    unreadable: int = 0  # images that could not be read and were left out
    winner: str = ""  # the candidate that the recommendation names
    command: str = ""  # how to get it: what trains it, or that nothing needs training

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)

    def _said(self) -> list[str]:
        failed = [f"Failed: {name}, {reason}" for name, reason in self.failed.items()]
        return [*failed, self.recommendation, f"To use it: {self.command}"]

    def __repr__(self) -> str:
        from tophit.comparing.outputs import to_table  # which knows this class

        return "\n".join([as_text(to_table(self)), *self._said()])

    def _repr_html_(self) -> str:
        from tophit.comparing.outputs import to_table

        return as_html(to_table(self)) + "".join(f"<p>{escape(sentence)}</p>" for sentence in self._said())


def summarise(plan: Plan, store: Store) -> Comparison:
    """Compute a comparison from its finished runs, without training: from the seeds that every candidate has."""
    failed = _failures(plan, store)
    names = [name for name in plan.candidates if name not in failed]
    seeds = common_seeds(names, plan.budget.seeds, store)
    measured = UNTRAINED not in names and common_seeds([UNTRAINED], plan.budget.seeds, store)
    names += [UNTRAINED] if names and measured and set(seeds) <= set(measured) else []
    if not names or not seeds:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise TophitError(f"{store.folder} has no seed that all candidates have finished. {reasons}".strip())
    unreadable = _check_test_images(store, names, seeds, plan.metric)
    tables = {metric: {name: table_of(store, name, seeds, metric) for name in names} for metric in plan.metrics}
    of_metric = tables[plan.metric]
    baselines = {*plan.baselines, UNTRAINED}
    best = max((name for name in names if name in baselines), key=lambda name: of_metric[name].mean, default=None)
    verdicts = judge_pairs(of_metric)
    rank = ranks(of_metric, verdicts)
    against = {} if best is None else {name: verdicts[name, best] for name in names if name != best}
    rows = [
        Row(
            name,
            plan.candidates[name].note if name in plan.candidates else "",
            name in baselines,
            rank[name],
            {metric: estimate(tables[metric][name]) for metric in plan.metrics},
            *(
                (judged.found, judged.adjusted_p, judged.word, judged.detectable)
                if (judged := against.get(name))
                else (None, None, None, None)
            ),
            **_costs(store, name, seeds),
        )
        for name in sorted(names, key=lambda name: -of_metric[name].mean)
    ]
    counts = of_metric[names[0]].counts
    winner = _winner(rows, best)
    return Comparison(
        plan.title,
        plan.metric,
        len(seeds),
        int(counts.sum()),
        len(counts),
        best,
        rows,
        failed,
        recommend(rows, plan.metric, best, len(seeds), len(counts)),
        unreadable,
        winner,
        _command(plan, store, winner),
    )


def common_seeds(names: list[str], seeds: int, store: Store) -> list[int]:
    """Return the seeds that all of these candidates have finished."""
    return [seed for seed in range(seeds) if all(store.result_path(name, seed).is_file() for name in names)]


def _check_test_images(store: Store, names: list[str], seeds: list[int], metric: str) -> int:
    """Refuse runs that were tested on different images; return how many images could not be read."""
    _, expected = store.per_query(names[0], seeds[0], metric)
    unreadable = 0
    for name in names:
        for seed in seeds:
            _, labels = store.per_query(name, seed, metric)
            if not np.array_equal(labels, expected):
                raise TophitError(
                    f"{store.folder}: {name}, seed {seed} was not tested on the images of {names[0]}, seed {seeds[0]}, "
                    "so they can't be compared: the data have changed. Start a comparison in another folder."
                )
            unreadable = max(unreadable, (store.result(name, seed) or {}).get("unreadable", 0))
    return unreadable


def table_of(store: Store, name: str, seeds: list[int], metric: str) -> ClassTable:
    """Return a metric of a candidate's runs as a table of seeds x classes."""
    found = [store.per_query(name, seed, metric) for seed in seeds]
    return class_table([values for values, _ in found], found[0][1])


def recommend(rows: list[Row], metric: str, best_baseline: str | None, seeds: int, classes: int) -> str:
    """Return one sentence on what to use, with the evidence. ``rows`` are sorted, best first."""
    first = rows[0]
    tied = [row.name for row in rows[1:] if row.rank == 1]
    evidence = f"{counted_seeds(seeds)}, {classes} test classes"
    apart = f"; the data can't tell it from {_listed(tied)}" if tied else ""
    mean = 100 * first.metrics[metric].mean
    if best_baseline is None:
        return f"{first.name}: {metric} {mean:.1f}, the best of {len(rows)}{apart} ({evidence})."
    if first.difference is None:
        return f"Stay with {first.name}, a baseline: its {metric}, {mean:.1f}, is the highest{apart} ({evidence})."
    gain = _gain(first, metric, best_baseline)
    if first.verdict == "supported":
        return f"{gain}{apart} ({evidence})."
    tests = counted(len(rows) * (len(rows) - 1) // 2, "pair")
    return (
        f"Stay with {best_baseline}: no candidate is better beyond doubt, the highest is {gain} "
        f"({evidence}; p = {first.adjusted_p:.2g} for {tests})."
    )


def _winner(rows: list[Row], best_baseline: str | None) -> str:
    """Return the candidate to use: the first, unless it is not significantly better than the best baseline."""
    first = rows[0]
    sure = best_baseline is None or first.verdict in (None, "supported")
    return first.name if sure or best_baseline is None else best_baseline


def _command(plan: Plan, store: Store, winner: str) -> str:
    if winner == UNTRAINED and str(plan.data["manifest"]).endswith(SUFFIX):
        return "search the features as they are; nothing needs training"
    if winner == UNTRAINED:
        return f"tophit index IMAGES --run {any_recipe(plan).embedder.backbone} --out INDEX"
    return f"tophit train {shlex.quote(str(store.winner_path))} --run runs/NAME"


def counted_seeds(seeds: int) -> str:
    """Return a number of seeds in words."""
    return "1 seed" if seeds == 1 else f"{seeds} seeds"


def _gain(row: Row, metric: str, baseline: str) -> str:
    found = row.difference
    assert found is not None
    return (
        f"{row.name}: {100 * found.mean:+.1f} {metric} over {baseline}, the best baseline, interval "
        f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"
    )


def _listed(names: list[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _failures(plan: Plan, store: Store) -> dict[str, str]:
    found = {}
    for name in plan.candidates:
        for seed in range(plan.budget.seeds):
            result = store.result(name, seed)
            if result is not None and "error" in result:
                found[name] = f"seed {seed}: {result['error']}"
    return found


def _costs(store: Store, name: str, seeds: list[int]) -> dict[str, Any]:
    results = [found for seed in seeds if (found := store.result(name, seed)) is not None]
    return {
        "settings": results[0]["settings"],
        "seconds": statistics.median(result["seconds"] for result in results),
        "processor_seconds": statistics.median(result["processor_seconds"] for result in results),
        "peak_memory": max(result["peak_memory"] for result in results),
    }
