"""The files and tables of a comparison: terminal, CSV, JSON, Markdown and one HTML page."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from tophit.compare.cells import cells, chance, costs, explained, heads
from tophit.compare.page import to_html
from tophit.compare.statistics import Estimate
from tophit.compare.summary import Comparison
from tophit.files import write_text

if TYPE_CHECKING:
    from tophit.report.drawing import Drawing


def write_outputs(comparison: Comparison, folder: Path, drawings: "Sequence[Drawing]" = ()) -> list[Path]:
    """Write ``comparison.json``, ``.csv``, ``.md`` and ``.html``, with figures, into a folder; return their paths."""
    texts = {
        "json": json.dumps(comparison.to_json(), indent=2, ensure_ascii=False) + "\n",
        "csv": to_csv(comparison),
        "md": to_markdown(comparison),
        "html": to_html(comparison, drawings),
    }
    paths = []
    for suffix, text in texts.items():
        paths.append(folder / f"comparison.{suffix}")
        write_text(paths[-1], text)
    return paths


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
    lines = [f"# {comparison.title}", "", comparison.recommendation, "", explained(comparison), ""]
    lines += ["| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"]
    lines += ["| " + " | ".join(cells(row, comparison)) + " |" for row in comparison.rows]
    lines += [f"\nFailed: {name}, {reason}" for name, reason in comparison.failed.items()]
    return "\n".join(lines) + "\n"


def to_csv(comparison: Comparison) -> str:
    """Return a line a candidate: metrics as fractions, with the ends of their intervals."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    metrics = list(comparison.rows[0].metrics)
    ends = [f"{metric}{end}" for metric in metrics for end in ("", " low", " high")]
    difference = ["difference", "difference low", "difference high", "probability better", "p", "p adjusted"]
    costs = ["seconds", "processor seconds", "peak memory", "settings"]
    writer.writerow(["rank", "candidate", "note", "baseline", *ends, *difference, *costs])
    for row in comparison.rows:
        found = row.difference
        writer.writerow(
            [
                *(row.rank, row.name, row.note, int(row.baseline)),
                *(end for metric in metrics for end in _ends(row.metrics[metric])),
                *([""] * 5 if found is None else [*_ends(found), found.probability, found.p]),
                "" if row.adjusted_p is None else row.adjusted_p,
                *(row.seconds, row.processor_seconds, row.peak_memory, json.dumps(row.settings)),
            ]
        )
    return text.getvalue()


def _ends(found: Estimate) -> tuple[float, float, float]:
    return found.mean, found.low, found.high
