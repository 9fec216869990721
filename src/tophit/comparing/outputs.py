"""The tables of a comparison: for the terminal, as CSV and as Markdown, and the words and cells that they share."""

import csv
import io
import json

from rich.table import Table
from rich.text import Text

from tophit.comparing.statistics import Estimate
from tophit.comparing.summary import Comparison, Row, counted_seeds


def to_table(comparison: Comparison) -> Table:
    """Return the table that the terminal shows."""
    table = Table(box=None, pad_edge=False, caption="* baseline", caption_justify="left")
    for head in ("rank", "candidate", comparison.metric, "difference", "P(better)", "s", "MB"):
        table.add_column(head, justify="left" if head == "candidate" else "right", no_wrap=head != "candidate")
    for row in comparison.rows:
        main, found = row.metrics[comparison.metric], row.difference
        table.add_row(
            str(row.rank),
            Text(f"{row.name} *" if row.baseline else row.name),
            f"{100 * main.mean:.1f} ±{100 * (main.high - main.mean):.1f}",
            "" if found is None else f"{100 * found.mean:+.1f} ±{100 * (found.high - found.mean):.1f}",
            "" if found is None else chance(found),
            *costs(row),
            style="bold" if row.rank == 1 else None,
        )
    return table


def to_markdown(comparison: Comparison) -> str:
    """Return the recommendation and the table in Markdown."""
    names = heads(comparison)
    lines = [f"# {comparison.title}", "", comparison.recommendation, "", f"To use it: `{comparison.command}`", ""]
    lines += [explained(comparison), ""]
    lines += ["| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"]
    lines += ["| " + " | ".join(cells(row, comparison)) + " |" for row in comparison.rows]
    lines += [f"\nFailed: {name}, {reason}" for name, reason in comparison.failed.items()]
    return "\n".join(lines) + "\n"


def to_csv(comparison: Comparison) -> str:
    """Return one line per candidate: metrics as fractions, with the ends of their intervals."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    metrics = list(comparison.rows[0].metrics)
    ends = [f"{metric}{end}" for metric in metrics for end in ("", " low", " high")]
    difference = ["difference", "difference low", "difference high", "probability better", "p", "p adjusted", "verdict"]
    costs = ["seconds", "processor seconds", "peak memory", "settings"]
    writer.writerow(["rank", "candidate", "note", "baseline", *ends, *difference, *costs])
    for row in comparison.rows:
        found = row.difference
        writer.writerow(
            [
                *(row.rank, row.name, row.note, int(row.baseline)),
                *(end for metric in metrics for end in _ends(row.metrics[metric])),
                *([""] * 5 if found is None else [*_ends(found), found.probability, found.p]),
                *("" if value is None else value for value in (row.adjusted_p, row.verdict)),
                *(row.seconds, row.processor_seconds, row.peak_memory, json.dumps(row.settings)),
            ]
        )
    return text.getvalue()


def explained(comparison: Comparison) -> str:
    """Say in a few sentences how the numbers were measured."""
    against = "" if comparison.best_baseline is None else f" Differences are to {comparison.best_baseline}."
    over = "seeds and classes" if comparison.seeds > 1 else "classes"
    images = comparison.unreadable
    unread = f" {images:,} images could not be read and are left out." if images else ""
    return (
        f"{counted_seeds(comparison.seeds)}, {comparison.queries} test queries of {comparison.classes} classes. "
        f"In percent, with 95% intervals over {over}.{against} A rank is one more than the number of candidates that "
        "are better beyond doubt, comparing all pairs; candidates of equal rank can't be told apart. Intervals and "
        f"p-values of differences are adjusted for the number of pairs; P(better) is not.{unread}"
    )


def heads(comparison: Comparison) -> list[str]:
    """Return the column heads of the table."""
    others = [metric for metric in comparison.rows[0].metrics if metric != comparison.metric]
    return ["rank", "candidate", comparison.metric, "difference", "P(better)", "p (Holm)", *others, "s per run", "MB"]


def cells(row: Row, comparison: Comparison) -> list[str]:
    """Return a candidate's cells in the order of the heads."""
    main, found = row.metrics[comparison.metric], row.difference
    name = f"{row.name} (baseline)" if row.baseline else row.name
    compared = ["", "", ""]
    if found is not None:
        compared = [_signed(found), chance(found), f"{row.adjusted_p:.2g}"]
    others = [f"{100 * each.mean:.1f}" for metric, each in row.metrics.items() if metric != comparison.metric]
    return [str(row.rank), name, _plain(main), *compared, *others, *costs(row)]


def costs(row: Row) -> list[str]:
    """Return the seconds and megabytes of a run."""
    return [f"{row.seconds:.1f}", f"{row.peak_memory / 2**20:.0f}"]


def chance(found: Estimate) -> str:
    """Return the probability that a difference is above 0."""
    chance = found.probability
    return "<0.001" if chance < 0.0005 else ">0.999" if chance >= 0.9995 else f"{chance:.3f}"


def _plain(found: Estimate) -> str:
    """Return a metric with its interval; Student's t may exceed 0 and 1, which a metric can't."""
    low, high = max(0.0, found.low), min(1.0, found.high)
    return f"{100 * found.mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _signed(found: Estimate) -> str:
    mean, low, high = (round(100 * value, 1) + 0.0 for value in (found.mean, found.low, found.high))  # + 0.0: no -0.0
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


def _ends(found: Estimate) -> tuple[float, float, float]:
    return found.mean, found.low, found.high
