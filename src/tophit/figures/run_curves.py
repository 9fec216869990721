"""Curves of a run's log: loss and validation, the two stages of THSG, the violated constraints of PROFS."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from tophit.figures.drawing import Drawing
from tophit.figures.style import COLUMN, INK, house_style, new_axes, new_figure, series
from tophit.files import read_json_lines
from tophit.training.run import Run

Line = dict[str, Any]
_LONG = 1000  # steps
_MOST_POINTS = 1500  # of a curve; a column of a paper has 1,000 dots
_STAGES = (("LG1", "LD1", "kept1"), ("LG2", "LD2", "kept2"))


def run_drawings(run_folder: str | Path) -> list[Drawing]:
    """Return the training curves of a run and those of its method; a run in progress has some too."""
    run = Run.open(run_folder)
    lines = read_json_lines(run.log_path) if run.log_path.is_file() else []
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
    window = _window_of(len(loss))
    smooth = _running_mean(loss, window)
    evaluated = [line for line in lines if metric in line]
    epochs = np.asarray([line["epoch"] for line in evaluated])
    values = 100 * np.asarray([line[metric] for line in evaluated])
    part, _, name = metric.partition("/")
    with house_style():
        figure = new_figure(COLUMN, 3.1 if evaluated else 1.9)
        rows = figure.subplots(2 if evaluated else 1, 1, sharex=True, squeeze=False)[:, 0]
        shown = _thinned(loss)
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
    """Say after which epoch the generated samples of THSG join, if the log shows it."""
    first = next((number for number, line in enumerate(steps) if "LG1" in line), 0)
    if not first:
        return ""
    epoch = steps[first - 1]["epoch"]
    return f" Pretraining ends with epoch {epoch}; then generated samples join, which can cause a jump."


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
    """Return the curves of THSG's stages: generator loss, discriminator loss and the share of labels kept."""
    made = [line for line in steps if "LG1" in line]
    x = _epochs(steps)[["LG1" in line for line in steps]]
    window = _window_of(len(made))
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
        "THSG: losses of the generator and the discriminator in each stage (Eqs. 12, 16, 17 and 23), and the share of "
        "generated samples to which the classifier still gives their label, for every step"
    ) + (f" (faint) and as running means over {window} steps." if window > 1 else ".")
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
        "PROFS: the share of the pairs of a representative and an image of its batches that violate their constraint "
        "on the distance of unit vectors, at the end of each projection."
    )
    return Drawing("violated_constraints", "Violated constraints", caption, numbers, figure)


def _smooth_and_raw(axes: Any, x: np.ndarray, y: np.ndarray, window: int, number: int) -> None:
    shown = _thinned(y)
    axes.plot(x[shown], y[shown], color=series(number)["color"], alpha=0.25, linewidth=0.5)
    axes.plot(x, _running_mean(y, window), color=series(number)["color"])


def _low_and_high(axes: Any, smooth: np.ndarray, raw: np.ndarray) -> None:
    """Fit the axis to nearly all values of a long run, so that a few outliers at its start do not hide the rest."""
    low, high = np.quantile(raw, [0.001, 0.995]) if len(raw) >= _LONG else (raw.min(), raw.max())
    low, high = min(low, smooth.min()), max(high, smooth.max())
    room = 0.06 * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)


def _epochs(steps: list[Line]) -> np.ndarray:
    """Return the time of each step in epochs: the last step of the first epoch is at 1."""
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


def _running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean (n,) of the ``window`` values around each one; fewer at the ends.

    >>> _running_mean(np.array([0.0, 3.0, 6.0, 0.0]), 3).tolist()
    [1.5, 3.0, 3.0, 3.0]
    """
    half = window // 2
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    places = np.arange(len(values))
    first, last = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def _window_of(steps: int) -> int:
    """Return an odd window of about a twentieth of the steps."""
    return max(1, steps // 20) | 1


def _thinned(values: np.ndarray, most: int = _MOST_POINTS) -> np.ndarray:
    """Return the numbers of values (n,) that keep the look of a long curve: the lowest and highest of each stretch.

    >>> _thinned(np.array([1.0, 5.0, 2.0, 0.0, 3.0, 3.0]), 4).tolist()
    [0, 1, 3, 4]
    """
    if len(values) <= most:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), most // 2 + 1).astype(int)
    kept: list[int] = []
    for start, end in itertools.pairwise(edges.tolist()):
        part = values[start:end]
        kept.extend(sorted({start + int(part.argmin()), start + int(part.argmax())}))
    return np.asarray(kept)
