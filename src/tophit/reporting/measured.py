"""A model measured on the test rows, and the sentence and the table that say how good it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tophit.data.manifest import ImageRow, Manifest
from tophit.evaluation import PairedDifference, RetrievalMetrics
from tophit.evaluation.relevance import Mark
from tophit.evaluation.scores import SearchTask, search_task
from tophit.models.embedder import Embedder
from tophit.progress import View
from tophit.training.evaluate import SearchArrays, metrics_of_vectors, search_arrays
from tophit.training.full_evaluation import embed_by_both
from tophit.training.row_relevance import usual_metrics
from tophit.training.wanted import BY_LABELS, Judging
from tophit.wording import counted


@dataclass(frozen=True)
class Measured:
    """A model's vectors (N, d) of the rows that could be read, and its metrics with intervals and per query.

    ``search`` says which rows search which. Values per query are in the order of ``search.query``.
    """

    name: str
    rows: list[ImageRow]
    vectors: np.ndarray
    search: SearchArrays
    metrics: RetrievalMetrics

    @property
    def labels(self) -> list[str]:
        """The label of every row (N)."""
        return [row.label for row in self.rows]

    @property
    def query_labels(self) -> np.ndarray:
        """The label of every query (Q,)."""
        return self.search.arguments["labels"]

    def task(self) -> SearchTask:
        """Return the search, with classes as numbers."""
        return search_task(**self.search.arguments)


def measured(
    name: str,
    rows: list[ImageRow],
    vectors: np.ndarray,
    metrics: Sequence[str] = (),
    judging: Judging = BY_LABELS,
) -> Measured:
    """Measure vectors (N, d) of rows (N) as ``tophit evaluate`` does; ``metrics`` are added to the usual ones."""
    names = list(dict.fromkeys([*metrics, *usual_metrics(rows, judging)]))
    found = metrics_of_vectors(vectors, rows, 0.95, names, judging=judging)
    return Measured(name, rows, vectors, search_arrays(vectors, rows, judging, names), found)


def measure_models(
    names: tuple[str, str | None],
    embedders: tuple[Embedder, Embedder | None],
    part: Manifest,
    metrics: Sequence[str] = (),
    view: View | None = None,
    judging: Judging = BY_LABELS,
) -> tuple[Measured, Measured | None]:
    """Measure a model, and another on the same rows if there is one, without images that either can't read."""
    rows, vectors, second = embed_by_both(embedders[0], part, embedders[1], view)
    first = measured(names[0], rows, vectors, metrics, judging)
    return first, None if second is None or names[1] is None else measured(names[1], rows, second, metrics, judging)


def mark_words(rows: Sequence[ImageRow], parent: str) -> dict[Mark, str]:
    """Return what right, wrong and, in a hierarchy, near mean for these rows; ``parent`` is the level above the class.

    >>> from pathlib import Path
    >>> mark_words([ImageRow(Path("a.jpg"), "cat")], "parent")
    {'right': 'same class', 'wrong': 'another class'}
    """
    kind = rows[0].kind if rows else "one"
    if kind == "several":
        return {"right": "shares a label", "wrong": "no label in common"}
    if kind == "path":
        return {"right": "same class", "near": f"same {parent}", "wrong": "neither"}
    return {"right": "same class", "wrong": "another class"}


def headline(
    first: Measured,
    before: Mapping[str, float],
    other: Measured | None = None,
    difference: PairedDifference | None = None,
    near: tuple[float, str] | None = None,
) -> str:
    """Return the sentence to repeat: how often the first result is right, in terms of a page of results.

    ``difference`` is that of recall@1. ``near`` is the share of first results that are only near, and what that means.
    """
    wide = max((k for k in (5, 8, 10) if f"recall@{k}" in first.metrics), default=None)
    sentence = f"{_of_hundred(first.metrics['recall@1'])} of 100 searches have a right first result"
    if near is not None:
        sentence += f", {_of_hundred(near[0])} more a near one ({near[1]})"
    if wide is not None:
        one = "have one" if near is None else "a right one"
        sentence += f", and {_of_hundred(first.metrics[f'recall@{wide}'])} {one} among the first {wide}"
    if "recall@1" in before and other is None:
        sentence += f"; before training the first was right for {_of_hundred(before['recall@1'])}"
    if other is None or difference is None:
        return f"{sentence}."
    theirs = f"{_of_hundred(other.metrics['recall@1'])} with {other.name}"
    sure = not (difference.low <= 0 <= difference.high or difference.p_permutation >= 0.05)
    return f"{sentence}; {theirs}, {'more than chance explains' if sure else 'which may be chance'}."


def _of_hundred(share: float) -> str:
    """Return a share as a whole number of a hundred, but never all or none unless it is."""
    return f"{min(99, max(1, round(100 * share))) if 0 < share < 1 else round(100 * share)}"


def verdict(
    first: Measured,
    metric: str,
    before: Mapping[str, float],
    before_intervals: Mapping[str, Sequence[float]],
    other: Measured | None = None,
    difference: PairedDifference | None = None,
) -> str:
    """Return the exact sentence of a report: the metric, the backbone before training if known, the other model."""
    classes = {name for row in first.search.query for name in first.rows[row].classes}
    kind = "label" if first.rows[0].kind == "several" else "class"
    sentence = f"{metric} is {_with_interval(first.metrics[metric], first.metrics.intervals.get(metric))} "
    sentence += f"on {counted(len(first.search.query), 'query')} of {counted(len(classes), kind)}"
    if before.get(metric) is not None:
        gain = 100 * (first.metrics[metric] - before[metric])
        sentence += f", {abs(gain):.1f} points {'above' if gain >= 0 else 'below'} the backbone before training, "
        sentence += _with_interval(before[metric], before_intervals.get(metric))
    if other is None or difference is None:
        return f"{sentence}."
    return f"{sentence}. {against_sentence(other.name, difference)}"


def against_sentence(other: str, difference: PairedDifference) -> str:
    """Say how a model compares with another on the same queries."""
    interval = f"(95% interval {100 * difference.low:+.1f} to {100 * difference.high:+.1f})"
    if difference.low <= 0 <= difference.high or difference.p_permutation >= 0.05:
        return (
            f"On the same queries it can't be told apart from {other}: {100 * difference.mean:+.1f} points {interval}."
        )
    word = "above" if difference.mean > 0 else "below"
    return f"On the same queries it is {abs(100 * difference.mean):.1f} points {word} {other} {interval}."


def metric_rows(
    first: Measured, other: Measured | None, differences: Mapping[str, PairedDifference]
) -> list[dict[str, Any]]:
    """Return the table of metrics as plain values, all as fractions."""
    rows = []
    for name, value in first.metrics.items():
        row: dict[str, Any] = {"name": name, "value": value, "interval": first.metrics.intervals.get(name)}
        if other is not None:
            row |= {"other": other.metrics[name], "other_interval": other.metrics.intervals.get(name)}
        if name in differences:
            change = differences[name]
            row |= {"difference": change.mean, "bounds": (change.low, change.high), "p": change.p_permutation}
        rows.append(row)
    return rows


def _with_interval(value: float, bounds: Sequence[float] | None) -> str:
    text = f"{100 * value:.1f}%"
    return text if bounds is None else f"{text} ({100 * bounds[0]:.1f} to {100 * bounds[1]:.1f})"
