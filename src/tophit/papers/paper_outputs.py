"""A paper's table as Markdown, CSV and one HTML page, and for the terminal."""

import csv
import io
from collections.abc import Sequence
from html import escape

from rich.table import Table

from tophit.figures import DRAWING_CSS, Drawing
from tophit.figures.html import data_script, page_head, page_style
from tophit.papers.measured_rows import Cell, MeasuredRow, MeasuredTable, is_distance

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
body { margin: 0 auto; max-width: 72rem; padding: 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--surface, #fff) }
h1 { font-size: 1.3rem; margin: .2rem 0 } h2 { font-size: 1.05rem }
.muted { color: var(--muted, #666) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th, td { padding: .35rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line, #ddd) }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--surface, #fff) }
td b { font-weight: 600 } td small { color: var(--muted, #666); display: block }
tr.quoted td { color: var(--muted, #666) }
figure { margin: 1.5rem 0 } figcaption { font-size: .9rem }
"""


def to_markdown(found: MeasuredTable) -> str:
    """Return the table in Markdown: in every cell ours, and after a stroke the paper's."""
    lines = [f"# {_heading(found)}", "", found.title, ""]
    if found.rows:
        lines += [f"| row | {' | '.join(found.columns)} |", "| --- |" + " --- |" * len(found.columns)]
        lines += [f"| {_name(row)} | {' | '.join(_cells(row, found.columns))} |" for row in found.rows]
    lines += ["", *(f"- {note}" for note in found.notes)]
    return "\n".join([*lines, *_failures(found)]) + "\n"


def to_csv(found: MeasuredTable) -> str:
    """Return one line per row and column: ours, half the width of its interval, the paper's, the number of seeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "metric", "ours", "half width", "paper", "seeds", "quoted"])
    for row in found.rows:
        for column, cell in row.cells.items():
            numbers = ("" if value is None else value for value in (cell.ours, cell.half_width, cell.paper))
            writer.writerow([row.name, column, *numbers, row.seeds, int(row.quoted)])
    return text.getvalue()


def to_html(found: MeasuredTable, drawings: Sequence[Drawing] = ()) -> str:
    """Return one page that needs no other file: the figures, the table, and what to know about them."""
    figures = "".join(
        f"<figure>{each.svg()}<figcaption><b>{escape(each.title)}.</b> {escape(each.caption)}</figcaption></figure>"
        for each in drawings
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in (*found.notes, *_failures(found)))
    return f"""{page_head(_heading(found), _POLICY, page_style() + DRAWING_CSS + _STYLE)}<body>
<p class="muted">{escape(found.title)}</p><h1>{escape(_heading(found))}</h1>
{figures}{_html_table(found)}
<ul class="muted">{notes}</ul>
{"".join(data_script("table", found.to_json()))}</body>
</html>
"""


def to_terminal(found: MeasuredTable) -> Table:
    """Return the table that the terminal shows: below each row the paper's; intervals are in the files."""
    heads = [_short(column) for column in found.columns]
    table = Table("row", *heads, title=_heading(found), title_justify="left", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for row in found.rows:
        if not row.quoted:
            table.add_row(row.name, *(_ours(row.cells[each], each, False) or "-" for each in found.columns))
        if any(cell.paper is not None for cell in row.cells.values()):
            name = f"{row.name} (quoted)" if row.quoted else "  the paper"
            table.add_row(name, *(_paper(row.cells[column]) or "-" for column in found.columns), style="dim")
    return table


def _short(column: str) -> str:
    """Return a metric's name as papers' column heads have it.

    >>> _short("small/recall@1")
    'small R@1'
    """
    for name, short in {"recall@": "R@", "precision@": "P@", "dists@": "", "ndcg@": "nDCG@", "/": " "}.items():
        column = column.replace(name, short)
    return column


def _heading(found: MeasuredTable) -> str:
    where = f" on {found.set_name}" if found.set_name else ""
    return f"{found.name}{where}: {found.caption}"


def _name(row: MeasuredRow) -> str:
    return f"{row.name} (quoted)" if row.quoted else row.name


def _cells(row: MeasuredRow, columns: Sequence[str]) -> list[str]:
    return [_text(row.cells[column], column) for column in columns]


def _text(cell: Cell, column: str) -> str:
    ours, paper = _ours(cell, column), _paper(cell)
    return f"{ours} / {paper}" if ours and paper else ours or (f"- / {paper}" if paper else "-")


def _ours(cell: Cell, column: str, with_interval: bool = True) -> str:
    if cell.ours is None:
        return ""
    digits = 3 if is_distance(column) else 1
    half = f" ±{cell.half_width:.{digits}f}" if with_interval and cell.half_width is not None else ""
    return f"{cell.ours:.{digits}f}{half}"


def _paper(cell: Cell) -> str:
    return "" if cell.paper is None else f"{cell.paper:g}"


def _html_table(found: MeasuredTable) -> str:
    if not found.rows:
        return ""
    heads = "".join(f"<th scope='col' title='{escape(each)}'>{escape(_short(each))}</th>" for each in found.columns)
    head = f"<th scope='col'>row</th>{heads}"
    body = "\n".join(_html_row(row, found.columns) for row in found.rows)
    return (
        '<div class="scroll" role="region" aria-label="Table" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _html_row(row: MeasuredRow, columns: Sequence[str]) -> str:
    cells = (
        f"<td><b>{_ours(cell, column) or '-'}</b><small>paper {_paper(cell) or '-'}</small></td>"
        for column in columns
        for cell in [row.cells[column]]
    )
    kind = ' class="quoted"' if row.quoted else ""
    return f"<tr{kind}><td>{escape(_name(row))}</td>{''.join(cells)}</tr>"


def _failures(found: MeasuredTable) -> list[str]:
    return [f"Failed: {row.name}, {row.failed}" for row in found.rows if row.failed]
