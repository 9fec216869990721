"""What a report says first: one sentence on how good the model is, and against what."""

from collections.abc import Mapping, Sequence
from typing import Any

from tophit.evaluation import PairedDifference
from tophit.report.evaluated import Evaluated


def verdict(
    first: Evaluated,
    metric: str,
    before: Mapping[str, float],
    before_intervals: Mapping[str, Sequence[float]],
    other: Evaluated | None = None,
    difference: PairedDifference | None = None,
) -> str:
    """Return the sentence: the metric with its interval, the backbone before training if known, and the other model."""
    classes = len(set(first.query_labels.tolist()))
    sentence = f"{metric} is {_with_interval(first.metrics[metric], first.metrics.intervals.get(metric))} "
    sentence += f"on {len(first.query):,} queries of {classes:,} classes"
    if before.get(metric) is not None:
        gain = 100 * (first.metrics[metric] - before[metric])
        sentence += f", {abs(gain):.1f} points {'above' if gain >= 0 else 'below'} the backbone before training, "
        sentence += _with_interval(before[metric], before_intervals.get(metric))
    if other is None or difference is None:
        return f"{sentence}."
    return f"{sentence}. {against_sentence(other.name, difference)}"


def against_sentence(other: str, difference: PairedDifference) -> str:
    """Say how a model stands to another on the same queries."""
    interval = f"(95% interval {100 * difference.low:+.1f} to {100 * difference.high:+.1f})"
    if difference.low <= 0 <= difference.high or difference.p_permutation >= 0.05:
        return (
            f"On the same queries it can't be told apart from {other}: {100 * difference.mean:+.1f} points {interval}."
        )
    word = "above" if difference.mean > 0 else "below"
    return f"On the same queries it is {abs(100 * difference.mean):.1f} points {word} {other} {interval}."


def metric_rows(
    first: Evaluated, other: Evaluated | None, differences: Mapping[str, PairedDifference]
) -> list[dict[str, Any]]:
    """Return the table of metrics as plain values, fractions all."""
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
