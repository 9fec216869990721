"""How numbers are written on the page."""

from collections.abc import Sequence

from benchmarks.claims.cells import Cell
from tophit.comparing.statistics import Estimate


def points(value: float) -> str:
    """Return a difference in points."""
    return f"{round(100 * value, 1) + 0.0:+.1f}"


def signed(found: Estimate) -> str:
    """Return a difference with its interval, in points."""
    return f"{points(found.mean)} [{points(found.low)}, {points(found.high)}]"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "| " + " | ".join("---" for _ in heads) + " |"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def mean_cell(cell: Cell) -> str:
    """Return the mean recall@1 of a cell's runs, in percent."""
    return f"{100 * cell.table(cell.seeds(), 'recall@1').mean:.1f}"
