"""Figures of a comparison: the interval of every candidate and the trials of every search."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tophit.comparing.plan import Candidate, Plan, Range, slug
from tophit.comparing.store import Store
from tophit.comparing.summary import Comparison
from tophit.comparing.tuning import best_trial, read_trials
from tophit.figures import Drawing
from tophit.figures.style import COLUMN, PAGE, SERIES, SURFACE, house_style, new_axes, new_figure

Trial = dict[str, Any]
_WIDEST = 4  # panels in a row
_FEWEST = 4  # trials of a search that has its own figure


def comparison_drawings(comparison: Comparison, plan: Plan | None = None, store: Store | None = None) -> list[Drawing]:
    """Return the intervals of the candidates and, given the plan and the folder, the trials of each search."""
    drawings = [_intervals(comparison)]
    if any(row.difference is not None for row in comparison.rows):
        drawings.append(_differences(comparison))
    if plan is not None and store is not None:
        trials = {row.name: trials_of(store, plan, row.name) for row in comparison.rows}
        if any(trials.values()):
            drawings.append(_all_trials({name: each for name, each in trials.items() if each}, plan.select))
        searched = [name for name, each in trials.items() if len(each) >= _FEWEST]
        drawings.extend(
            _trials(name, stem, plan.candidates[name], trials[name], plan.select)
            for name, stem in zip(searched, _stems(searched), strict=True)
        )
    return drawings


def trials_of(store: Store, plan: Plan, name: str) -> list[Trial]:
    """Return the finished trials of a candidate's search: settings, validation value, state."""
    paths = [store.trial_path(name, slot) for slot in range(plan.budget.trials)]
    return read_trials([path for path in paths if path.is_file()])


def _intervals(comparison: Comparison) -> Drawing:
    """Return every candidate's mean with its interval, the best at the top."""
    rows, metric = comparison.rows, comparison.metric
    found = [row.metrics[metric] for row in rows]
    hollow = [row.baseline for row in rows]
    numbers = {
        "candidate": [row.name for row in rows],
        "rank": [row.rank for row in rows],
        "baseline": [int(row.baseline) for row in rows],
        metric: [each.mean for each in found],
        f"{metric} low": [each.low for each in found],
        f"{metric} high": [each.high for each in found],
    }
    ends = 100 * np.asarray([(each.low, each.mean, each.high) for each in found])
    first = [row.rank == 1 for row in rows]
    figure = _forest([_short(row.name) for row in rows], ends, hollow, first, f"{metric} (%)")
    caption = (
        f"{metric} on the test classes with 95% intervals, over {comparison.seeds} "
        f"seed{'s' if comparison.seeds > 1 else ''} and {comparison.classes} classes. Blue: not significantly worse "
        "than the best. Hollow: baselines."
    )
    return Drawing("intervals", "Intervals", caption, numbers, figure)


def _differences(comparison: Comparison) -> Drawing:
    """Return the paired difference of every candidate to the best baseline."""
    rows = [(row, row.difference) for row in comparison.rows if row.difference is not None]
    ends = 100 * np.asarray([(each.low, each.mean, each.high) for _, each in rows])
    numbers = {
        "candidate": [row.name for row, _ in rows],
        "difference": [each.mean for _, each in rows],
        "difference low": [each.low for _, each in rows],
        "difference high": [each.high for _, each in rows],
        "p adjusted": [float("nan") if row.adjusted_p is None else row.adjusted_p for row, _ in rows],
        "verdict": [row.verdict for row, _ in rows],
    }
    hollow = [row.baseline for row, _ in rows]
    axis = f"difference in {comparison.metric} (points)"
    certain = [row.verdict != "undecided" for row, _ in rows]
    figure = _forest([_short(row.name) for row, _ in rows], ends, hollow, certain, axis, zero=0.0)
    caption = (
        f"Differences in {comparison.metric} to {comparison.best_baseline}, the best baseline, paired by seed and "
        "class, with 95% intervals that are adjusted for the number of pairs. Blue: beyond doubt, the interval "
        "excludes 0. Hollow: baselines."
    )
    return Drawing("differences", "Differences to the best baseline", caption, numbers, figure)


def _forest(
    names: Sequence[str],
    ends: np.ndarray,
    hollow: Sequence[bool],
    blue: Sequence[bool],
    axis: str,
    zero: float | None = None,
) -> Any:
    """Draw one line per mean and interval (low, mean, high), the first at the top, in blue or grey."""
    with house_style():
        figure, axes = new_axes(COLUMN, 0.62 + 0.17 * len(names))
        places = np.arange(len(names))[::-1]
        for place, (low, mean, high), is_hollow, is_blue in zip(places, ends, hollow, blue, strict=True):
            colour = SERIES[0] if is_blue else SERIES[6]
            axes.plot([low, high], [place, place], color=colour, linewidth=1.2)
            mark = {"marker": "s" if is_hollow else "o", "markersize": 4, "markeredgecolor": colour}
            axes.plot([mean], [place], markerfacecolor=SURFACE if is_hollow else colour, zorder=3, **mark)
        if zero is not None:
            axes.axvline(zero, color=SERIES[6], linewidth=0.8, linestyle=(0, (3, 2)), zorder=0)
        _name_lines(axes, names)
        axes.set_xlabel(axis)
        axes.margins(x=0.04)
    return figure


def _all_trials(trials: Mapping[str, Sequence[Trial]], metric: str) -> Drawing:
    """Return the validation value of every trial, one line per candidate."""
    flat = [(name, number, trial) for name, each in trials.items() for number, trial in enumerate(each)]
    numbers: dict[str, Any] = {
        "candidate": [name for name, _, _ in flat],
        "trial": [number for _, number, _ in flat],
        "state": [trial["state"] for _, _, trial in flat],
        f"validation {metric}": [_value(trial) for _, _, trial in flat],
        "settings": [json.dumps(trial["settings"]) for _, _, trial in flat],
    }
    with house_style():
        figure, axes = new_axes(COLUMN, 0.62 + 0.17 * len(trials))
        for line, each in zip(range(len(trials) - 1, -1, -1), trials.values(), strict=True):
            for trial in each:
                _mark_trial(axes, 100 * _value(trial), line, trial, each)
        _name_lines(axes, [_short(name) for name in trials])
        axes.set_xlabel(f"{metric} on validation classes (%)")
        axes.margins(x=0.04)
    stopped = sum(trial["state"] == "pruned" for _, _, trial in flat)
    caption = (
        f"The {len(flat)} trials of all searches; their settings are in the CSV file. The ring marks each candidate's "
        f"best trial, whose settings were measured{_stopped(stopped)}."
    )
    return Drawing("trials", "Hyper-parameters searched", caption, numbers, figure)


def _mark_trial(axes: Any, x: float, y: float, trial: Trial, of: Sequence[Trial]) -> None:
    """Draw a trial as a dot: hollow if it was stopped early, with a ring if it is the best."""
    face = SERIES[0] if trial["state"] == "complete" else "none"
    style = {"marker": "o", "linestyle": "none"}
    axes.plot([x], [y], markersize=4, markerfacecolor=face, markeredgecolor=SERIES[0], **style)
    if trial is best_trial(of):
        axes.plot([x], [y], markersize=8, markerfacecolor="none", markeredgecolor=SERIES[5], **style)


def _value(trial: Trial) -> float:
    return float("nan") if trial["value"] is None else trial["value"]


def _stopped(count: int) -> str:
    return f"; hollow: the {count} that were stopped early, at their last value" if count else ""


def _trials(name: str, stem: str, candidate: Candidate, trials: Sequence[Trial], metric: str) -> Drawing:
    """Return every trial of a search: one panel per hyper-parameter, its value against the validation metric."""
    paths = list(candidate.search)
    done = [trial for trial in trials if trial["value"] is not None]
    numbers: dict[str, Any] = {
        **{path: [_plain(trial["settings"].get(path, "")) for trial in trials] for path in paths},
        f"validation {metric}": [_value(trial) for trial in trials],
        "state": [trial["state"] for trial in trials],
    }
    columns = min(len(paths), _WIDEST)
    lines = -(-len(paths) // columns)
    with house_style():
        figure = new_figure(COLUMN if columns <= 2 else PAGE, 0.25 + 1.75 * lines)
        panels = figure.subplots(lines, columns, sharey=True, squeeze=False)
        for number, path in enumerate(paths):
            axes = panels[number // columns, number % columns]
            _trials_panel(axes, candidate.search[path], path, done)
            axes.set_xlabel(path)
            if number % columns == 0:
                axes.set_ylabel(f"validation {metric} (%)")
        for number in range(len(paths), lines * columns):
            panels[number // columns, number % columns].axis("off")
    stopped = sum(trial["state"] == "pruned" for trial in trials)
    caption = (
        f"{name}: the {len(trials)} trials of its search, each hyper-parameter against {metric} on validation classes"
        f"{_stopped(stopped)}. The ring marks the settings that were measured."
    )
    return Drawing(stem, f"Search: {name}", caption, numbers, figure)


def _trials_panel(axes: Any, where: Any, path: str, done: Sequence[Trial]) -> None:
    ordered = isinstance(where, Range)
    choices = [] if ordered else [_plain(value) for value in where]
    for trial in done:
        given = trial["settings"].get(path)
        if given is None or (not ordered and _plain(given) not in choices):
            continue  # a trial of an earlier plan
        x = given if ordered else choices.index(_plain(given))
        _mark_trial(axes, x, 100 * trial["value"], trial, done)
    if ordered and where.log:
        axes.set_xscale("log")
    if not ordered:
        axes.set_xticks(range(len(choices)), [str(choice) for choice in choices])
        axes.set_xlim(-0.5, len(choices) - 0.5)
    axes.margins(x=0.12, y=0.15)


def _name_lines(axes: Any, names: Sequence[str]) -> None:
    """Write names at the lines of a figure, the first at the top."""
    axes.set_yticks(range(len(names) - 1, -1, -1), names)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(-0.6, len(names) - 0.4)


def _plain(value: Any) -> float | int | str:
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else str(value)


def _short(name: str, most: int = 26) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _stems(names: Sequence[str]) -> list[str]:
    """Return file names for candidates, with a number where two would be the same."""
    stems: list[str] = []
    for name in names:
        plain = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in slug(name).lower())
        stem = f"trials_{plain.strip('_')}"
        stems.append(stem if stem not in stems else f"{stem}_{len(stems) + 1}")
    return stems
