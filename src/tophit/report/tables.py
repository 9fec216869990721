"""Tables of metrics for the terminal."""

from collections.abc import Mapping, Sequence

from rich.table import Table

SHOWN = ("recall@1", "precision@5", "MAP@R", "ndcg@8")
Measured = tuple[Mapping[str, float], Mapping[str, Sequence[float]]]


def metrics_table(models: Mapping[str, Measured], names: Sequence[str] = SHOWN) -> Table:
    """Return a table with a row a model and a column a metric, in percent with half the interval's width."""
    table = Table("model", *names)
    for model, (metrics, intervals) in models.items():
        table.add_row(model, *(f"{100 * metrics[name]:.1f}{_half_width(intervals.get(name))}" for name in names))
    return table


def metric_list(metrics: Mapping[str, float], intervals: Mapping[str, Sequence[float]]) -> Table:
    """Return a table with a row a metric, in percent."""
    table = Table("metric", "%", "95% interval")
    for name, value in metrics.items():
        table.add_row(name, f"{100 * value:.2f}", _interval(intervals.get(name)))
    return table


def _half_width(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f" ±{50 * (bounds[1] - bounds[0]):.1f}"


def _interval(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f"{100 * bounds[0]:.2f} to {100 * bounds[1]:.2f}"
