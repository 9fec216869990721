"""The page of a comparison: one HTML file that requests nothing from a network."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from tophit.comparing.outputs import cells, explained, heads
from tophit.comparing.statistics import Estimate
from tophit.comparing.summary import Comparison, Row
from tophit.figures import DRAWING_CSS, Drawing
from tophit.figures.html import data_script, page_head, page_style

_STATIC = Path(__file__).parent / "static"
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_MORE = ' class="more"'  # a column that the check box "all metrics" shows
_MANY = 3  # further figures are folded away


def to_html(comparison: Comparison, drawings: Sequence[Drawing] = ()) -> str:
    """Return one page that needs no other file: the table, figures if there are any, and the data as JSON."""
    style = page_style() + (DRAWING_CSS if drawings else "") + (_STATIC / "comparison.css").read_text(encoding="utf-8")
    return f"""{page_head(comparison.title, _POLICY, style)}<body>
<header><p class="brand">Tophit comparison</p><h1>{escape(comparison.title)}</h1></header>
<main>
<section class="lead"><p class="answer">{escape(comparison.recommendation)}</p>
<p>To use it: <code>{escape(comparison.command)}</code></p>
<p class="muted">{escape(explained(comparison))}</p></section>
{_facts(comparison)}
{_table(comparison)}
{_figures(drawings)}
{_settings(comparison.rows)}
{_failed(comparison)}
</main>
{"".join(data_script("comparison", comparison.to_json()))}<script>
{(_STATIC / "comparison.js").read_text(encoding="utf-8")}</script>
</body>
</html>
"""


def _facts(comparison: Comparison) -> str:
    facts = {
        "candidates": len(comparison.rows),
        "seeds": comparison.seeds,
        "test classes": comparison.classes,
        "test queries": comparison.queries,
    }
    shown = "".join(f"<div><dt>{name}</dt><dd>{value:,}</dd></div>" for name, value in facts.items())
    return f'<dl class="facts">{shown}</dl>'


def _table(comparison: Comparison) -> str:
    names = [*heads(comparison), "interval"]
    classes = _classes(names, comparison)
    every = [row.metrics[comparison.metric] for row in comparison.rows]
    low, high = min(each.low for each in every), max(each.high for each in every)
    head = "".join(
        f"<th{kind} scope='col'><button type='button'>{escape(name)}</button></th>"
        for kind, name in zip(classes, names, strict=True)
    )
    body = "\n".join(_line(row, comparison, low, high, classes) for row in comparison.rows)
    more = '<label class="all"><input type="checkbox" /> all metrics</label>' if _MORE in classes else ""
    return (
        f"<section><h2>Candidates{more}</h2>"
        '<div class="scroll" role="region" aria-label="Table of candidates" tabindex="0">'
        f'<table class="candidates"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div></section>'
    )


def _line(row: Row, comparison: Comparison, low: float, high: float, classes: Sequence[str]) -> str:
    main = row.metrics[comparison.metric]
    shown = [*(escape(cell) for cell in cells(row, comparison)), _bar(main, low, high)]
    shown[1] = escape(row.name) + ('<span class="tag">baseline</span>' if row.baseline else "")
    if row.note:
        shown[1] += f"<small>{escape(row.note)}</small>"
    values = zip(classes, [*_values(row, comparison), main.mean], shown, strict=True)
    return (
        ('<tr class="first">' if row.rank == 1 else "<tr>")
        + "".join(f'<td{kind} data-value="{escape(str(value))}">{cell}</td>' for kind, value, cell in values)
        + "</tr>"
    )


def _values(row: Row, comparison: Comparison) -> list[Any]:
    """Return the values by which the columns are sorted, in the order of the heads; empty where there is none."""
    found = row.difference
    compared = ["", "", ""] if found is None else [found.mean, found.probability, row.adjusted_p]
    others = [each.mean for metric, each in row.metrics.items() if metric != comparison.metric]
    main = row.metrics[comparison.metric].mean
    return [row.rank, row.name, main, *compared, *others, row.seconds, row.peak_memory]


def _classes(names: Sequence[str], comparison: Comparison) -> list[str]:
    """Return the class of each column; recall@k for k > 1 is hidden at first unless it is the metric."""
    less = {name for name in names if name.startswith("recall@")} - {"recall@1", comparison.metric}
    return [' class="name"' if place == 1 else _MORE if name in less else "" for place, name in enumerate(names)]


def _bar(found: Estimate, low: float, high: float) -> str:
    def place(value: float) -> float:
        return 100 * (value - low) / ((high - low) or 1)

    left, right = place(found.low), place(found.high)
    return (
        f'<div class="bar"><i style="left:{left:.1f}%;width:{right - left:.1f}%"></i>'
        f'<b style="left:{place(found.mean):.1f}%"></b></div>'
    )


def _figures(drawings: Sequence[Drawing]) -> str:
    if not drawings:
        return ""
    first = "".join(map(_figure, drawings[:_MANY]))
    more = "".join(map(_figure, drawings[_MANY:]))
    folded = (
        f"<details><summary>Settings and validation metric of each search ({len(drawings) - _MANY})</summary>"
        f'<div class="figures">{more}</div></details>'
        if more
        else ""
    )
    return f'<section><h2>Figures</h2><div class="figures">{first}</div>{folded}</section>'


def _figure(drawing: Drawing) -> str:
    numbers = base64.b64encode(drawing.csv().encode("utf-8")).decode("ascii")
    return (
        f"<figure><h3>{escape(drawing.title)}</h3>{drawing.svg()}<figcaption><p>{escape(drawing.caption)} "
        f'<a download="{drawing.name}.csv" href="data:text/csv;base64,{numbers}">Numbers (CSV)</a></p>'
        "</figcaption></figure>"
    )


def _settings(rows: Sequence[Row]) -> str:
    """Return the settings that the searches found and that were measured."""
    found = {row.name: row.settings for row in rows if row.settings}
    if not found:
        return ""
    lines = "".join(
        f'<tr><td class="name">{escape(name)}</td><td><code>'
        + escape(", ".join(f"{path} = {_short(value)}" for path, value in settings.items()))
        + "</code></td></tr>"
        for name, settings in found.items()
    )
    return f'<section><h2>Settings found</h2><table class="settings"><tbody>{lines}</tbody></table></section>'


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _failed(comparison: Comparison) -> str:
    if not comparison.failed:
        return ""
    lines = "".join(
        f'<p><strong class="wrong">Failed:</strong> {escape(f"{name}, {why}")}</p>'
        for name, why in comparison.failed.items()
    )
    return f"<section><h2>Failed</h2>{lines}</section>"
