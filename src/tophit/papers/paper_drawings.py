"""The figures of the papers, drawn from the runs of their rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tophit.data.folders import part_of
from tophit.evaluation.nearest import found_lists
from tophit.figures import Drawing
from tophit.figures.galleries import Ranked, gallery_drawing
from tophit.figures.maps import coordinates, map_drawing
from tophit.figures.pairs import pair_drawings
from tophit.figures.style import COLUMN, MARKERS, PAGE, SERIES, house_style, new_figure, series
from tophit.files import read_json_lines
from tophit.models.embedder import load
from tophit.papers.measured_rows import MeasuredRow, MeasuredTable
from tophit.papers.reproduction import Reproduction
from tophit.progress import View
from tophit.reporting.measured import Measured, measure_models
from tophit.training.run import Run, data_of_run

_QUERIES, _SHOWN = 6, 5  # of a figure of lists
_SEED = 0  # figures of single runs show the first seed


def paper_drawings(made: Reproduction, found: MeasuredTable, view: View) -> list[Drawing]:
    """Return the figures of an entry, from the rows that have finished runs."""
    kind = made.entry.draws
    rows = [row for row in found.rows if row.seeds]
    if kind == "table" or not rows:
        return []
    if kind == "over":
        return [_over(rows, found.columns[0])]
    if kind == "bars":
        return [_bars(rows, found.columns)]
    runs = {row.name: Run(made.store.run_path(row.name, _SEED)) for row in rows}
    runs = {name: run for name, run in runs.items() if run.recipe_path.is_file()}
    if kind == "curves":
        return _curves(runs, found.columns[0], view)
    return [each for name, run in runs.items() for each in _of_one(kind, name, run, view)]


def _curves(runs: Mapping[str, Run], metric: str, view: View) -> list[Drawing]:
    """Return the metric over steps and over triplets, precision-recall and ROC, with all rows in each."""
    measured = [_measured(name, run, view) for name, run in runs.items()]
    pairs = pair_drawings([(each.name, each.search.arguments) for each in measured])
    return [*(_along(runs, metric, axis) for axis in ("steps", "tuples")), *pairs[:2]]


def _along(runs: Mapping[str, Run], metric: str, axis: str) -> Drawing:
    """Return a metric on the test classes along training, over steps or over the tuples learned from."""
    label = {"steps": "steps", "tuples": "triplets, or misplaced pairs, learned from"}[axis]
    numbers: dict[str, Any] = {}
    with house_style():
        figure = new_figure(COLUMN, 3.0)
        axes = figure.add_subplot()
        for number, (name, run) in enumerate(runs.items()):
            x, y = _log_of(run, metric, axis)
            axes.plot(x, 100 * y, label=name, marker=MARKERS[number % len(MARKERS)], markersize=2.5, **series(number))
            numbers |= {f"{name}, {label}": x, f"{name}, {metric}": y}
        axes.set(xlabel=label, ylabel=f"{metric} on test classes (%)")
        figure.legend(loc="outside upper center", ncols=2)
    caption = f"{metric} on the test classes after each measured epoch of the first seed, over the {label}."
    return Drawing(f"along_{axis}", f"{metric} along training", caption, numbers, figure)


def _log_of(run: Run, metric: str, axis: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps, or the tuples so far, and the metric on the test classes, of every evaluation in a log."""
    x, y, seen = [], [], 0.0
    for line in read_json_lines(run.log_path):
        seen = float(line.get("tuples", seen))
        if f"test/{metric}" in line:
            x.append(float(line["step"]) if axis == "steps" else seen)
            y.append(float(line[f"test/{metric}"]))
    return np.asarray(x), np.asarray(y)


def _of_one(kind: str, name: str, run: Run, view: View) -> list[Drawing]:
    """Return the lists or the map of one run's test images."""
    found = _measured(name, run, view)
    stem = "".join(letter if letter.isalnum() else "_" for letter in name.lower()).strip("_")
    if kind == "map":
        points, method = coordinates(found.vectors)
        made = map_drawing(points, found.labels, method, f"{name}: the test images")
    else:
        made = gallery_drawing(found.rows, _ranked(found), _SHOWN, title=f"{name}: queries and their first results")
    return [Drawing(f"{kind}_{stem}", made.title, made.caption, made.numbers, made.figure)]


def _ranked(found: Measured) -> list[Ranked]:
    """Return the first results of some queries, evenly spread over the test classes."""
    places = np.unique(np.linspace(0, len(found.search.query) - 1, _QUERIES).astype(int))
    query, gallery = found.search.query, found.search.gallery
    lists = found_lists(found.task(), places, _SHOWN).values()
    return [Ranked(int(query[each.query]), gallery[each.items].tolist(), each.scores, each.marks) for each in lists]


def _measured(name: str, run: Run, view: View) -> Measured:
    manifest = data_of_run(str(run.folder))
    first, _ = measure_models((name, None), (load(run.folder), None), part_of(manifest, "test"), view=view)
    return first


def _over(rows: Sequence[MeasuredRow], column: str) -> Drawing:
    """Return a metric over what each series varies; series of one axis share a panel."""
    panels = list(dict.fromkeys(row.axis for row in rows))
    numbers: dict[str, Any] = {}
    with house_style():
        figure = new_figure(COLUMN if len(panels) == 1 else PAGE, 2.4)
        for axes, axis in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            names = dict.fromkeys(row.series for row in rows if row.axis == axis)
            for number, name in enumerate(names):
                points = [row for row in rows if (row.axis, row.series) == (axis, name)]
                numbers |= _draw_series(axes, number, points, column)
            axes.set(xlabel=axis, ylabel=f"{column} (%)")
            axes.legend()
    caption = f"{column} on the test classes; bars are 95% intervals over seeds. Dashed: the paper's numbers, if given."
    return Drawing("over", f"{column} over {', '.join(panels)}", caption, numbers, figure)


def _draw_series(axes: Any, number: int, points: Sequence[MeasuredRow], column: str) -> dict[str, Any]:
    x = [row.x for row in points]
    cells = [row.cells[column] for row in points]
    ours = [_or(cell.ours) for cell in cells]
    half = [_or(cell.half_width, 0.0) for cell in cells]
    name, colour = points[0].series, SERIES[number % len(SERIES)]
    axes.errorbar(x, ours, half, color=colour, marker=MARKERS[number % len(MARKERS)], capsize=2, label=name)
    paper = [_or(cell.paper) for cell in cells]
    if not np.isnan(paper).all():
        axes.plot(x, paper, color=colour, linestyle=(0, (4, 2)), marker="x", label=f"{name}, the paper")
    head = f"{name}, {points[0].axis}"
    return {head: x, f"{head}: {column}": ours, f"{head}: half width": half, f"{head}: paper": paper}


def _bars(rows: Sequence[MeasuredRow], columns: Sequence[str]) -> Drawing:
    """Return a bar per row, grouped by metric, with the paper's number as a mark where it is known."""
    numbers: dict[str, Any] = {"row": [row.name for row in rows]}
    width = 0.8 / len(rows)
    with house_style():
        figure = new_figure(COLUMN if len(columns) == 1 else PAGE, 2.6)
        axes = figure.add_subplot()
        for number, row in enumerate(rows):
            cells = [row.cells[column] for column in columns]
            x = np.arange(len(columns)) + (number - (len(rows) - 1) / 2) * width
            ours = [_or(cell.ours) for cell in cells]
            half = [_or(cell.half_width, 0.0) for cell in cells]
            axes.bar(x, ours, 0.9 * width, yerr=half, color=SERIES[number % len(SERIES)], label=row.name)
            paper = [_or(cell.paper) for cell in cells]
            axes.plot(x, paper, linestyle="none", marker="_", markersize=8, color="black")
        for column in columns:
            numbers[column] = [_or(row.cells[column].ours) for row in rows]
            numbers[f"{column}, the paper"] = [_or(row.cells[column].paper) for row in rows]
        axes.set_xticks(np.arange(len(columns)), columns)
        axes.set_ylabel("%")
        figure.legend(loc="outside upper center", ncols=2)
    caption = "On the test classes; thin bars are 95% intervals over seeds, black marks the paper's numbers if given."
    return Drawing("bars", "Ablation", caption, numbers, figure)


def _or(value: float | None, otherwise: float = float("nan")) -> float:
    """Return a number of a cell, or what stands for none."""
    return otherwise if value is None else value
