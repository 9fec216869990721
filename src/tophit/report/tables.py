"""Tables of metrics for the terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from tophit.evaluation import PairedDifference

SHOWN = ("recall@1", "precision@5", "MAP@R", "ndcg@8")
Measured = tuple[Mapping[str, float], Mapping[str, Sequence[float]]]


def metrics_table(models: Mapping[str, Measured], names: Sequence[str] = SHOWN) -> Table:
    """Return a table with one row per model and one column per metric, in percent with half the interval's width."""
    table = Table("model", *names)
    for model, (metrics, intervals) in models.items():
        table.add_row(model, *(f"{100 * metrics[name]:.1f}{_half_width(intervals.get(name))}" for name in names))
    return table


def metric_list(metrics: Mapping[str, float], intervals: Mapping[str, Sequence[float]]) -> Table:
    """Return a table with one row per metric, in percent."""
    table = Table("metric", "%", "95% interval")
    for name, value in metrics.items():
        table.add_row(name, f"{100 * value:.2f}", _interval(intervals.get(name)))
    return table


def comparison_list(
    metrics: Mapping[str, float], other: Mapping[str, float], differences: Mapping[str, "PairedDifference"]
) -> Table:
    """Return a table with one row per metric: both models in percent, the difference with interval and p-value."""
    table = Table("metric", "%", "against %", "difference", "95% interval", "p (permutation)")
    for name, difference in differences.items():
        table.add_row(
            name,
            f"{100 * metrics[name]:.2f}",
            f"{100 * other[name]:.2f}",
            f"{100 * difference.mean:+.2f}",
            f"{100 * difference.low:+.2f} to {100 * difference.high:+.2f}",
            f"{difference.p_permutation:.4f}",
        )
    return table


def drawn_galleries_table(test_sets: Mapping[str, Mapping[str, float]]) -> Table:
    """Return a table with one row per test set of VehicleID's protocol, in percent."""
    names = ("recall@1", "recall@5", "mAP")
    table = Table("test set", *names, title="Galleries of one random image per class, mean of 10 draws (%)")
    for test_set, metrics in test_sets.items():
        table.add_row(test_set, *(f"{100 * metrics[name]:.2f}" for name in names))
    return table


def paper_table(paper: Mapping[str, Any]) -> Table:
    """Return a table with one row per metric: the run's value and the one reported by its paper, in percent."""
    where = ", ".join(part for part in (paper["table"], paper["row"]) if part)
    table = Table("metric", "ours %", "paper %", "difference", title=f"{paper['title']} ({where})")
    for name, values in paper["metrics"].items():
        ours, theirs = values["ours"], values["paper"]
        known = ("", "") if ours is None else (f"{ours:.2f}", f"{ours - theirs:+.2f}")
        table.add_row(name, known[0], f"{theirs:g}", known[1])
    return table


def _half_width(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f" ±{50 * (bounds[1] - bounds[0]):.1f}"


def _interval(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f"{100 * bounds[0]:.2f} to {100 * bounds[1]:.2f}"
