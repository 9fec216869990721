"""Figures of a run's log: loss and validation, THSG's two stages, PROFS's violated constraints."""

from pathlib import Path
from typing import Any

import numpy as np

from tophit.report.drawing import Drawing
from tophit.report.figures.curves import running_mean, thinned, window_of
from tophit.report.runs import read_log
from tophit.report.style import COLUMN, INK, house_style, new_axes, new_figure, series
from tophit.training.run import Run

Line = dict[str, Any]
_LONG = 1000  # steps
_STAGES = (("LG1", "LD1", "kept1"), ("LG2", "LD2", "kept2"))


def run_drawings(run_folder: str | Path) -> list[Drawing]:
    """Return what a run's own files give: training curves, and those of its method. A run in progress has some too."""
    run = Run.open(run_folder)
    lines = read_log(run.log_path) if run.log_path.is_file() else []
    steps = [line for line in lines if "loss" in line]
    if not steps:
        return []
    recipe = run.recipe()
    made = [_training_curves(steps, lines, f"{recipe.evaluation.select_on}/{recipe.evaluation.metric}", _chosen(run))]
    if any("LG1" in line for line in steps):
        made.append(_generation_stages(steps))
    if any("violated_positive" in line for line in steps):
        made.append(_violated_constraints(steps, recipe.method))
    return made


def _chosen(run: Run) -> int | None:
    """Return the epoch whose embedder was kept, or None if the run has not finished."""
    result = run.result()
    return None if result is None else result["best_epoch"]


def _training_curves(steps: list[Line], lines: list[Line], metric: str, chosen: int | None) -> Drawing:
    x, loss = _epochs(steps), _column(steps, "loss")
    window = window_of(len(loss))
    smooth = running_mean(loss, window)
    evaluated = [line for line in lines if metric in line]
    epochs = np.asarray([line["epoch"] for line in evaluated])
    values = 100 * np.asarray([line[metric] for line in evaluated])
    part, _, name = metric.partition("/")
    with house_style():
        figure = new_figure(COLUMN, 3.1 if evaluated else 1.9)
        rows = figure.subplots(2 if evaluated else 1, 1, sharex=True, squeeze=False)[:, 0]
        shown = thinned(loss)
        rows[0].plot(x[shown], loss[shown], color=series(0)["color"], alpha=0.3, linewidth=0.6)
        rows[0].plot(x, smooth, **series(0))
        rows[0].set_ylabel("loss")
        _low_and_high(rows[0], smooth, loss)
        if evaluated:
            rows[1].plot(epochs, values, marker="o", color=series(2)["color"], clip_on=False)
            rows[1].set_ylabel(f"{part} {name} (%)")
            rows[1].margins(y=0.18)
            _mark_chosen(rows[1], epochs, values, chosen)
        rows[-1].set_xlabel("epoch")
        rows[-1].set_xlim(0, max(x[-1], epochs[-1] if evaluated else 0))
        figure.align_ylabels()
    kept = "" if chosen is None or not evaluated else f" The ring marks epoch {chosen}, whose embedder was kept."
    below = f" Below: {name} on the {part} classes after each evaluation.{kept}" if evaluated else ""
    smoothed = f" (faint) and its running mean over {window} steps" if window > 1 else ""
    caption = f"The loss of every step{smoothed}.{_where_generated_join(steps)}{below}"
    numbers = {
        **{"step": [line["step"] for line in steps], "epoch": x, "loss": loss, "loss, running mean": smooth},
        **({"evaluated epoch": epochs, metric: values / 100} if evaluated else {}),
    }
    return Drawing("training_curves", "Training", caption, numbers, figure)


def _where_generated_join(steps: list[Line]) -> str:
    """Say after which epoch of pretraining THSG's generated samples join, if the log shows it."""
    first = next((number for number, line in enumerate(steps) if "LG1" in line), 0)
    if not first:
        return ""
    return f" Pretraining ends with epoch {steps[first - 1]['epoch']}: a jump there is where generated samples join."


def _mark_chosen(axes: Any, epochs: np.ndarray, values: np.ndarray, chosen: int | None) -> None:
    there = np.flatnonzero(epochs == chosen)
    if not len(there):
        return
    x, y = epochs[there[0]], values[there[0]]
    ring = {"markeredgecolor": INK, "markeredgewidth": 1}
    axes.plot([x], [y], marker="o", markersize=7, markerfacecolor="none", clip_on=False, **ring)
    said = {"transform": axes.transAxes, "ha": "right", "va": "bottom", "fontsize": 7}
    axes.text(0.98, 0.05, f"epoch {x}: {y:.1f}", **said)  # where a rising curve leaves room


def _generation_stages(steps: list[Line]) -> Drawing:
    """Return the curves of THSG's stages: losses of generator and discriminator, and the share of labels kept."""
    made = [line for line in steps if "LG1" in line]
    x = _epochs(steps)[["LG1" in line for line in steps]]
    window = window_of(len(made))
    stages = [names for names in _STAGES if names[0] in made[-1]]
    numbers: dict[str, Any] = {"step": [line["step"] for line in made], "epoch": x}
    heads = ("generator loss", "discriminator loss", "labels kept (%)")
    with house_style():
        figure = new_figure(COLUMN, 3.6)
        panels = figure.subplots(len(heads), len(stages), sharex=True, squeeze=False)
        for column, names in enumerate(stages):
            panels[0, column].set_title(f"stage {column + 1}")
            for line, name in enumerate(names):
                numbers[name] = _column(made, name)
                factor = 100 if name == names[-1] else 1
                _smooth_and_raw(panels[line, column], x, factor * numbers[name], window, line)
            panels[-1, column].set_xlabel("epoch")
        for line, head in enumerate(heads):
            panels[line, 0].set_ylabel(head)
        highest = max(axes.get_ylim()[1] for axes in panels[-1])
        for axes in panels[-1]:
            axes.set_ylim(0, highest)
        figure.align_ylabels()
    said = (
        "THSG: losses of generator and discriminator in each stage (Eqs. 12, 16, 17 and 23), and the share of "
        "generated samples that the classifier still gives their label, step by step"
    ) + (f": faint, and running means over {window} steps." if window > 1 else ".")
    return Drawing("generation_stages", "Generated triplets", said, numbers, figure)


def _violated_constraints(steps: list[Line], method: Any) -> Drawing:
    """Return PROFS's violated constraints, projection by projection."""
    ends = [line for line in steps if "violated_positive" in line]
    projection = np.asarray([line["projection"] for line in ends]) + 1
    positive, negative = _column(ends, "violated_positive"), _column(ends, "violated_negative")
    with house_style():
        figure, axes = new_axes(COLUMN, 2.1)
        markers = len(ends) <= 40
        said = (f"same class, farther than {method.near:g}", f"other class, nearer than {method.far:g}")
        for number, (values, label) in enumerate(zip((positive, negative), said, strict=True)):
            marker = "os"[number] if markers else None
            axes.plot(projection, 100 * values, marker=marker, label=label, **series(number))
        axes.set(xlabel="projection", ylabel="violated constraints (%)")
        axes.set_ylim(bottom=0)
        axes.margins(y=0.25)
        axes.locator_params(axis="x", integer=True)
        figure.legend(loc="outside upper center", ncols=1)
    numbers = {"projection": projection, "violated_positive": positive, "violated_negative": negative}
    caption = (
        "PROFS: the share of pairs of a representative and an image of its batches that violate their constraint "
        "(distances of unit vectors), at the end of each projection."
    )
    return Drawing("violated_constraints", "Violated constraints", caption, numbers, figure)


def _smooth_and_raw(axes: Any, x: np.ndarray, y: np.ndarray, window: int, number: int) -> None:
    shown = thinned(y)
    axes.plot(x[shown], y[shown], color=series(number)["color"], alpha=0.25, linewidth=0.5)
    axes.plot(x, running_mean(y, window), color=series(number)["color"])


def _low_and_high(axes: Any, smooth: np.ndarray, raw: np.ndarray) -> None:
    """Let the axis end where nearly all values of a long run do: a few outliers at its start must not hide the rest."""
    low, high = np.quantile(raw, [0.001, 0.995]) if len(raw) >= _LONG else (raw.min(), raw.max())
    low, high = min(low, smooth.min()), max(high, smooth.max())
    room = 0.06 * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)


def _epochs(steps: list[Line]) -> np.ndarray:
    """Return where each step stands, in epochs: the last step of the first epoch at 1."""
    in_epoch: dict[int, int] = {}
    for line in steps:
        in_epoch[line["epoch"]] = in_epoch.get(line["epoch"], 0) + 1
    seen: dict[int, int] = {}
    places = []
    longest = max(in_epoch.values())
    for line in steps:
        epoch = line["epoch"]
        seen[epoch] = seen.get(epoch, 0) + 1
        whole = in_epoch[epoch] if epoch < steps[-1]["epoch"] else max(in_epoch[epoch], longest)
        places.append(epoch - 1 + seen[epoch] / whole)
    return np.asarray(places)


def _column(lines: list[Line], name: str) -> np.ndarray:
    return np.asarray([line[name] for line in lines], np.float64)
