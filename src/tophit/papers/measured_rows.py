"""The rows of a paper's table with our numbers beside the paper's, and what differs from its set-up."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from tophit.comparing.plan import Plan, recipe_of
from tophit.comparing.store import Store
from tophit.papers.entries import PaperRow, paper_title
from tophit.papers.reproduction import Reproduction
from tophit.recipe import make_recipe, merged, read_recipe
from tophit.recipe.sections import SPREAD
from tophit.tables import set_up_sentence
from tophit.training.paper import as_printed, set_up_differences


@dataclass(frozen=True)
class Cell:
    """Our mean over seeds, half the width of its 95% interval, and the paper's number; None where there is none."""

    ours: float | None
    half_width: float | None
    paper: float | None


@dataclass(frozen=True)
class MeasuredRow:
    """A row: its cells by column; ``seeds`` is 0 for a quoted row, and where no run has finished."""

    name: str
    quoted: bool
    seeds: int
    cells: dict[str, Cell]
    failed: str | None = None
    series: str = ""
    axis: str = ""
    x: float | None = None


@dataclass(frozen=True)
class MeasuredTable:
    """A table or figure with everything that is known of it so far."""

    name: str
    title: str
    caption: str
    set_name: str
    columns: tuple[str, ...]
    rows: list[MeasuredRow]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def measure(made: Reproduction) -> MeasuredTable:
    """Gather the finished runs of a table; the paper's numbers stand there only if the data are the paper's."""
    plan = made.store.plan()
    results = {row.name: _results(made.store, plan, row) for row in made.rows if row.recipe is not None}
    left_out = _left_out(results)
    rows = [_measured(row, results.get(row.name), made.columns, left_out is None) for row in made.rows]
    entry = made.entry
    return MeasuredTable(
        made.name,
        paper_title(made.name),
        entry.caption,
        made.set_name,
        made.columns,
        rows,
        _notes(made, plan, left_out),
    )


def is_distance(column: str) -> bool:
    """Say whether a column is a distance, which is not in percent."""
    return column in SPREAD


def _results(store: Store, plan: Plan, row: PaperRow) -> list[dict[str, Any]]:
    found = (store.result(row.name, seed) for seed in range(plan.budget.seeds))
    return [result for result in found if result is not None]


def _left_out(results: Mapping[str, list[dict[str, Any]]]) -> str | None:
    """Return why the paper's numbers must not stand beside ours, or None if they may."""
    every = (result.get("paper_left_out") for found in results.values() for result in found)
    return next((reason for reason in every if reason), None)


def _measured(
    row: PaperRow, results: list[dict[str, Any]] | None, columns: Sequence[str], with_paper: bool
) -> MeasuredRow:
    printed = row.printed if with_paper else {}
    if results is None:
        return MeasuredRow(row.name, True, 0, {column: Cell(None, None, printed.get(column)) for column in columns})
    failed = next((result["error"] for result in results if "error" in result), None)
    good = [result for result in results if "error" not in result]
    cells = {}
    for column in columns:
        values = [value for result in good if (value := _value(result, column)) is not None]
        cells[column] = Cell(*_mean_and_half(values), printed.get(column))
    return MeasuredRow(row.name, False, len(good), cells, failed, row.series, row.axis, row.x)


def _value(result: Mapping[str, Any], column: str) -> float | None:
    """Return a column of a run's result as papers print it; ``small/recall@1`` is of the test set named small."""
    test_set, slash, metric = column.rpartition("/")
    found = (result.get("test_sets") or {}).get(test_set, {}) if slash else result["metrics"]
    return as_printed(metric, found[metric]) if metric in found else None


def _mean_and_half(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and half the width of Student's 95% interval over seeds; no width for one seed.

    >>> _mean_and_half([1.0, 2.0, 3.0])
    (2.0, 2.484...)
    """
    if not values:
        return None, None
    if len(values) == 1:
        return float(values[0]), None
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)), float(stdtrit(len(values) - 1, 0.975)) * spread


def _notes(made: Reproduction, plan: Plan, left_out: str | None) -> list[str]:
    seeds = plan.budget.seeds
    over = "1 seed, so no intervals." if seeds == 1 else f"Means of {seeds} seeds, ± half of Student's 95% interval."
    notes = [f"Ours / the paper's, in percent{_but_distances(made.columns)}. {over}"]
    if any(row.recipe is None for row in made.rows):
        notes.append("Rows marked 'quoted' are the paper's own numbers; nothing here trains them.")
    if left_out:
        notes.append(f"The paper's numbers are left out: {left_out}.")
    notes += [made.entry.note] if made.entry.note else []
    return notes + _differences(made, plan)


def _but_distances(columns: Sequence[str]) -> str:
    return ", but distances as they are" if any(map(is_distance, columns)) else ""


def _differences(made: Reproduction, plan: Plan) -> list[str]:
    """Return what differs from the paper's set-up: first in all rows, then in single ones."""
    found = {row.name: _of_row(row, plan) for row in made.rows if row.recipe is not None}
    every = list(found.values())
    common = {path: each for path, each in every[0].items() if all(other.get(path) == each for other in every[1:])}
    sentences = [set_up_sentence(common)]
    for name, differences in found.items():
        own = set_up_sentence({path: each for path, each in differences.items() if path not in common})
        sentences.append(own and f"{name}: {own[0].lower()}{own[1:]}")
    return [f"{sentence}." for sentence in sentences if sentence]


def _of_row(row: PaperRow, plan: Plan) -> dict[str, dict[str, Any]]:
    """Return a row's differences from its recipe, without those that the table or figure itself asks for."""
    shipped = read_recipe(str(row.recipe), data="unused").model_dump(mode="json")
    return set_up_differences(recipe_of(plan, row.name, 0, {}), make_recipe(merged(shipped, row.change)))
