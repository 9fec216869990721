"""The files and tables of a comparison: terminal, CSV, JSON, Markdown and one HTML page."""

import csv
import html
import io
import json
from pathlib import Path

from rich.table import Table
from rich.text import Text

from tophit.compare.statistics import Estimate
from tophit.compare.summary import Comparison, Row, counted_seeds
from tophit.files import write_text

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; margin: 2rem auto; padding: 0 2rem; width: max-content }
p { max-width: 60rem }
table { border-collapse: collapse } th, td { padding: .25rem .7rem; text-align: right; white-space: nowrap;
border-bottom: 1px solid #ddd }
th:nth-child(2), td:nth-child(2) { text-align: left } .baseline { color: #777 } .first { font-weight: 600 }
.bar { background: #eee; width: 14rem; height: .8rem; position: relative } .bar i { position: absolute; height: 100%;
background: #4a7fb5 } .bar b { position: absolute; width: 2px; height: 100%; background: #123 }
"""


def write_outputs(comparison: Comparison, folder: Path) -> list[Path]:
    """Write ``comparison.json``, ``.csv``, ``.md`` and ``.html`` into a folder and return their paths."""
    texts = {
        "json": json.dumps(comparison.to_json(), indent=2, ensure_ascii=False) + "\n",
        "csv": to_csv(comparison),
        "md": to_markdown(comparison),
        "html": to_html(comparison),
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
            "" if found is None else _chance(found),
            *_costs(row),
            style="bold" if row.rank == 1 else None,
        )
    return table


def to_markdown(comparison: Comparison) -> str:
    """Return the recommendation and the table in Markdown."""
    heads = _heads(comparison)
    lines = [f"# {comparison.title}", "", comparison.recommendation, "", _explained(comparison), ""]
    lines += ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    lines += ["| " + " | ".join(_cells(row, comparison)) + " |" for row in comparison.rows]
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


def to_html(comparison: Comparison) -> str:
    """Return one page that needs no other file; the data are in it as JSON."""
    heads = [*_heads(comparison), "interval"]
    every = [row.metrics[comparison.metric] for row in comparison.rows]
    low, high = min(each.low for each in every), max(each.high for each in every)
    body = "".join(
        f'<tr class="{"first" if row.rank == 1 else "baseline" if row.baseline else ""}">'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(row, comparison))
        + f"<td>{_bar(row.metrics[comparison.metric], low, high)}</td></tr>\n"
        for row in comparison.rows
    )
    failed = "".join(f"<p>Failed: {html.escape(f'{name}, {why}')}</p>" for name, why in comparison.failed.items())
    data = json.dumps(comparison.to_json(), ensure_ascii=False).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(comparison.title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{html.escape(comparison.title)}</h1>\n"
        f"<p><strong>{html.escape(comparison.recommendation)}</strong></p>\n<p>{html.escape(_explained(comparison))}</p>\n"
        f"<table><thead><tr>{''.join(f'<th>{html.escape(head)}</th>' for head in heads)}</tr></thead>\n"
        f"<tbody>\n{body}</tbody></table>{failed}\n"
        f'<script type="application/json" id="comparison">{data}</script></body></html>\n'
    )


def _explained(comparison: Comparison) -> str:
    against = "" if comparison.best_baseline is None else f" Differences are to {comparison.best_baseline}."
    over = "seeds and classes" if comparison.seeds > 1 else "classes"
    return (
        f"{counted_seeds(comparison.seeds)}, {comparison.queries} test queries of {comparison.classes} classes. "
        f"In percent, with 95% intervals over {over}. Equal ranks: the data can't tell.{against}"
    )


def _heads(comparison: Comparison) -> list[str]:
    others = [metric for metric in comparison.rows[0].metrics if metric != comparison.metric]
    return ["rank", "candidate", comparison.metric, "difference", "P(better)", "p (Holm)", *others, "s a run", "MB"]


def _cells(row: Row, comparison: Comparison) -> list[str]:
    main, found = row.metrics[comparison.metric], row.difference
    name = f"{row.name} (baseline)" if row.baseline else row.name
    compared = ["", "", ""]
    if found is not None:
        compared = [_signed(found), _chance(found), f"{row.adjusted_p:.2g}"]
    others = [f"{100 * each.mean:.1f}" for metric, each in row.metrics.items() if metric != comparison.metric]
    return [str(row.rank), name, _plain(main), *compared, *others, *_costs(row)]


def _costs(row: Row) -> list[str]:
    return [f"{row.seconds:.1f}", f"{row.peak_memory / 2**20:.0f}"]


def _chance(found: Estimate) -> str:
    chance = found.probability
    return "<0.001" if chance < 0.0005 else ">0.999" if chance >= 0.9995 else f"{chance:.3f}"


def _plain(found: Estimate) -> str:
    return f"{100 * found.mean:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def _signed(found: Estimate) -> str:
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"


def _ends(found: Estimate) -> tuple[float, float, float]:
    return found.mean, found.low, found.high


def _bar(found: Estimate, low: float, high: float) -> str:
    def place(value: float) -> float:
        return 100 * (value - low) / ((high - low) or 1)

    left, right = place(found.low), place(found.high)
    return (
        f'<div class="bar"><i style="left:{left:.1f}%;width:{right - left:.1f}%"></i>'
        f'<b style="left:{place(found.mean):.1f}%"></b></div>'
    )
