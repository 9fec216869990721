"""Figures over all pairs of query and gallery image: precision-recall, ROC, distances inside and between classes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tophit.evaluation import PairCurves, pair_curves
from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.figures.drawing import Drawing
from tophit.figures.style import COLUMN, INK, SERIES, house_style, new_axes, new_figure, series

_BITS = 12  # thresholds 1/4096 apart
_BINS = 100  # of the histogram, over distances 0 to 2


def pair_drawings(
    models: Sequence[tuple[str, Mapping[str, Any]]], *, memory_budget: int = MEMORY_BUDGET
) -> list[Drawing]:
    """Return precision-recall, ROC and distances over all pairs, with all models in the same figures.

    A model is its name for the legend and its arguments of ``pair_curves``. Pairs are counted in parts, within
    ``memory_budget`` bytes beyond the vectors.
    """
    names = [name for name, _ in models]
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    curves = {
        name: pair_curves(**search, bits=_BITS, memory_budget=memory_budget)
        for name, (_, search) in zip(names, models, strict=True)
    }
    return [_precision_recall(curves), _roc(curves), _distances(curves)]


def _precision_recall(models: dict[str, PairCurves]) -> Drawing:
    numbers: dict[str, Any] = {}
    with house_style():
        figure, axes = new_axes(COLUMN, 2.5)
        for number, (name, curves) in enumerate(models.items()):
            some = _thresholds_that_accept_more(curves)
            recall, precision = curves.recall[some], curves.precision[some]
            shown = _spaced(recall, precision)
            label = f"{name} (AP {100 * curves.average_precision:.1f})"
            axes.plot(100 * recall[shown], 100 * precision[shown], label=label, **series(number))
            prefix = f"{name}, " if len(models) > 1 else ""
            numbers |= {
                f"{prefix}similarity": curves.thresholds[some],
                f"{prefix}recall": recall,
                f"{prefix}precision": precision,
            }
        axes.set(xlabel="recall (%)", ylabel="precision (%)", xlim=(0, 102), ylim=(0, 102))
        figure.legend(loc="outside upper left")
    first = next(iter(models.values()))
    caption = f"{_of_pairs(first)} AP is the average precision over all pairs, in percent."
    return Drawing("precision_recall", "Precision and recall over pairs", caption, numbers, figure)


def _roc(models: dict[str, PairCurves]) -> Drawing:
    numbers: dict[str, Any] = {}
    with house_style():
        figure, axes = new_axes(COLUMN, 2.5)
        lowest = max(1e-5, min(1 / max(1, curves.false_accepted[-1]) for curves in models.values()))
        for number, (name, curves) in enumerate(models.items()):
            some = _thresholds_that_accept_more(curves)
            wrong, right = curves.false_positive_rate[some], curves.recall[some]
            shown = _spaced(1 + np.log10(np.maximum(wrong, lowest)) / -np.log10(lowest), right)
            label = f"{name} (AUC {100 * curves.roc_auc:.1f})"
            axes.plot(np.maximum(wrong, lowest)[shown], 100 * right[shown], label=label, **series(number))
            prefix = f"{name}, " if len(models) > 1 else ""
            numbers |= {
                f"{prefix}similarity": curves.thresholds[some],
                f"{prefix}false positive rate": wrong,
                f"{prefix}true positive rate": right,
            }
        chance = np.geomspace(lowest, 1, 100)
        axes.plot(chance, 100 * chance, color=INK, linewidth=0.6, linestyle=(0, (1, 2)), label="chance")
        axes.set(xscale="log", xlim=(lowest, 1), ylim=(0, 102))
        axes.set(xlabel="false positive rate", ylabel="true positive rate (%)")
        figure.legend(loc="outside upper left")
    caption = (
        f"{_of_pairs(next(iter(models.values())))} The axis of the false positive rate is logarithmic, because a "
        "search meets far more negative pairs than positive ones. AUC is the area under the curve on linear axes, in "
        "percent."
    )
    return Drawing("roc", "ROC over pairs", caption, numbers, figure)


def _distances(models: dict[str, PairCurves]) -> Drawing:
    edges = np.linspace(0, 2, _BINS + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    numbers: dict[str, Any] = {"distance from": edges[:-1], "distance to": edges[1:]}
    found = {name: _histograms(curves, edges) for name, curves in models.items()}
    used = np.flatnonzero(np.sum([same + other for same, other in found.values()], axis=0) > 1e-4)
    kinds = ("same class", "different classes")
    with house_style():
        figure = new_figure(COLUMN, 0.9 + 1.25 * len(models))
        rows = figure.subplots(len(models), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, both) in zip(rows, found.items(), strict=True):
            for number, (share, kind) in enumerate(zip(both, kinds, strict=True)):
                colour = SERIES[number]
                axes.fill_between(centres, 100 * share, step="mid", color=colour, alpha=0.25, linewidth=0)
                axes.step(centres, 100 * share, where="mid", color=colour, linewidth=1, label=kind)
                numbers[f"{name}, {kind}" if len(models) > 1 else kind] = share
            axes.set_ylim(bottom=0)
            axes.set_ylabel("pairs (%)")
            means = " and ".join(f"{float((share * centres).sum()):.2f}" for share in both)
            axes.set_title(f"{name}: means {means}", loc="left")
        rows[-1].set_xlim(edges[used[0]], edges[min(used[-1] + 1, _BINS)])
        rows[-1].set_xlabel("cosine distance")
        figure.legend(*rows[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    caption = (
        "Cosine distances (1 - similarity) of all pairs of the same class and of different classes, in bins of "
        f"{2 / _BINS:g}; each kind adds up to 100%."
    )
    return Drawing("distances", "Distances inside and between classes", caption, numbers, figure)


def _thresholds_that_accept_more(curves: PairCurves) -> np.ndarray:
    """Return the numbers of the thresholds that accept more pairs than the one before."""
    return np.flatnonzero(np.diff(curves.true_accepted + curves.false_accepted, prepend=0) > 0)


def _spaced(x: np.ndarray, y: np.ndarray, gap: float = 0.002) -> np.ndarray:
    """Return the numbers of points of a curve in the unit square that are about ``gap`` apart, with both ends."""
    length = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    kept = np.flatnonzero(np.diff(np.floor(length / gap), prepend=-1.0) > 0)
    return np.union1d(kept, [len(x) - 1])


def _histograms(curves: PairCurves, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares (bins,) of positive and negative pairs by distance, from counts by similarity."""
    middle = 1 - (curves.thresholds + curves.resolution / 2)
    bins = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, len(edges) - 2)

    def shares(accepted: np.ndarray) -> np.ndarray:
        counts = np.bincount(bins, weights=np.diff(accepted, prepend=0), minlength=len(edges) - 1)
        return counts / max(1.0, counts.sum())

    return shares(curves.true_accepted), shares(curves.false_accepted)


def _of_pairs(curves: PairCurves) -> str:
    right, wrong = int(curves.true_accepted[-1]), int(curves.false_accepted[-1])
    return (
        f"Over all {right:,} pairs of the same class and {wrong:,} of different classes. A pair is accepted if its "
        "cosine similarity reaches the threshold, which decreases along the curve."
    )
