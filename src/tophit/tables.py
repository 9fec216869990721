"""Tables of results: for the terminal, as plain text, and as HTML for notebooks."""

import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

SHOWN = ("recall@1", "precision@5", "MAP@R", "ndcg@8")
_PROTOCOLS = {
    "drawn-galleries": "Galleries of one random image per class, mean of 10 draws",
    "all": "Every image of a test set searches all others of the set",
}
Measured = tuple[Mapping[str, float], Mapping[str, Sequence[float]]]
_TEXT_WIDTH = 110


class Difference(Protocol):
    """A paired difference of two models, as ``tophit.evaluation`` computes it."""

    @property
    def mean(self) -> float:
        """The mean difference."""
        ...

    @property
    def low(self) -> float:
        """The lower end of its interval."""
        ...

    @property
    def high(self) -> float:
        """The upper end of its interval."""
        ...

    @property
    def p_permutation(self) -> float:
        """The p-value of a permutation test."""
        ...


def as_text(table: Table) -> str:
    """Return a table as plain text, for a ``repr``."""
    out = io.StringIO()
    Console(file=out, width=_TEXT_WIDTH, color_system=None, force_jupyter=False).print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def as_html(table: Table) -> str:
    """Return a table as HTML, for a notebook."""
    heads = "".join(f"<th>{_cell(column.header)}</th>" for column in table.columns)
    rows = zip(*(column.cells for column in table.columns), strict=True)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(cell)}</td>' for cell in row)}</tr>" for row in rows)
    title = f"<caption>{_cell(table.title)}</caption>" if table.title else ""
    below = f"<p>{_cell(table.caption)}</p>" if table.caption else ""
    return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{below}"


def _cell(value: Any) -> str:
    """Return what a cell shows, without the marks that a terminal turns into colours."""
    return escape(value.plain if isinstance(value, Text) else Text.from_markup(str(value)).plain)


def metrics_table(models: Mapping[str, Measured], names: Sequence[str] = SHOWN) -> Table:
    """Return a table with one row per model and one column per metric, in percent with half the interval's width."""
    table = Table("model", *names)
    for model, (metrics, intervals) in models.items():
        table.add_row(model, *(f"{100 * metrics[name]:.1f}{_half_width(intervals.get(name))}" for name in names))
    return table


def metric_list(metrics: Mapping[str, float], intervals: Mapping[str, Sequence[float]]) -> Table:
    """Return a table with one row per metric, in percent; distances (dists@intra, dists@inter) are as they are."""
    table = Table("metric", "%", "95% interval")
    for name, shown in _rows(metrics).items():
        value = metrics[name]
        table.add_row(
            shown, f"{value:.3f}" if _is_distance(name) else f"{100 * value:.2f}", _interval(intervals.get(name))
        )
    return table


def _rows(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Return the metrics to show, and how: of one result, recall and precision are the same number."""
    if not {"recall@1", "precision@1"} <= metrics.keys():
        return {name: name for name in metrics}
    same = {"recall@1": "recall@1 = precision@1"}
    return {name: same.get(name, name) for name in metrics if name != "precision@1"}


def spread_sentence(spread: Mapping[str, float]) -> str:
    """Return the spread of classes (see ``class_spread``) as a sentence that does not invite a wrong comparison."""
    return (
        f"Cosine distance of images to their class's others {spread['intra']:.3f}, of class means to each other "
        f"{spread['inter']:.3f}. (Means lie closer together than images do: compare each with another model's.)"
    )


def comparison_list(
    metrics: Mapping[str, float], other: Mapping[str, float], differences: Mapping[str, Difference]
) -> Table:
    """Return a table with one row per metric: both models in percent, the difference with interval and p-value."""
    table = Table("metric", "%", "against %", "difference", "95% interval", "p (permutation)")
    for name, shown in _rows(differences).items():
        difference = differences[name]
        table.add_row(
            shown,
            f"{100 * metrics[name]:.2f}",
            f"{100 * other[name]:.2f}",
            f"{100 * difference.mean:+.2f}",
            f"{100 * difference.low:+.2f} to {100 * difference.high:+.2f}",
            f"{difference.p_permutation:.4f}",
        )
    return table


def named_sets_table(test_sets: Mapping[str, Mapping[str, float]], protocol: str = "drawn-galleries") -> Table:
    """Return a table with one row per named test set, in percent; the title says how they were searched."""
    names = ("recall@1", "recall@5", "mAP")
    table = Table("test set", *names, title=f"{_PROTOCOLS[protocol]} (%)")
    for test_set, metrics in test_sets.items():
        table.add_row(test_set, *(f"{100 * metrics[name]:.2f}" for name in names))
    return table


def paper_table(paper: Mapping[str, Any]) -> Table:
    """Return a table with one row per metric: the run's value and the one reported by its paper, in percent.

    Below it stands every difference from the paper's set-up. Distances are not percent, and have three digits.
    """
    where = ", ".join(part for part in (paper["table"], paper["row"]) if part)
    below = set_up_sentence(paper.get("differences") or {})
    table = Table("metric", "ours %", "paper %", "difference", title=f"{paper['title']} ({where})", caption=below)
    for name, values in paper["metrics"].items():
        ours, theirs = values["ours"], values["paper"]
        digits = 3 if _is_distance(name) else 2
        known = ("", "") if ours is None else (f"{ours:.{digits}f}", f"{ours - theirs:+.{digits}f}")
        table.add_row(f"{name} (not %)" if _is_distance(name) else name, known[0], f"{theirs:g}", known[1])
    return table


def set_up_sentence(differences: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return a sentence that names every difference from the paper's set-up, or None if there is none."""
    if not differences:
        return None
    parts = [f"{path} {_value(each['ours'])} instead of {_value(each['paper'])}" for path, each in differences.items()]
    return f"Differs from the paper's set-up: {', '.join(parts)}"


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


def _is_distance(name: str) -> bool:
    return name.startswith("dists@")


def _half_width(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f" ±{50 * (bounds[1] - bounds[0]):.1f}"


def _interval(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f"{100 * bounds[0]:.2f} to {100 * bounds[1]:.2f}"
