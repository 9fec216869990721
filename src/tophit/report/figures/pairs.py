"""Figures of all pairs of queries and gallery: precision-recall, ROC, and distances inside and between classes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tophit.evaluation import PairCurves, pair_curves
from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.report.drawing import Drawing
from tophit.report.figures.curves import spaced
from tophit.report.style import COLUMN, INK, SERIES, house_style, new_axes, new_figure, series

if TYPE_CHECKING:
    from tophit.data.manifest import ImageRow

_BITS = 12  # thresholds 1/4096 apart
_BINS = 100  # of the histogram, over distances 0 to 2


class Evaluated(Protocol):
    """A model's vectors (N, d) of rows (N), and the numbers of the rows that search and are searched."""

    @property
    def name(self) -> str:
        """What the model is called in legends."""
        ...

    @property
    def rows(self) -> "Sequence[ImageRow]":
        """The images."""
        ...

    @property
    def vectors(self) -> np.ndarray:
        """Their unit vectors (N, d)."""
        ...

    @property
    def labels(self) -> Sequence[str]:
        """Their labels."""
        ...

    @property
    def query(self) -> np.ndarray:
        """The rows that search."""
        ...

    @property
    def gallery(self) -> np.ndarray:
        """The rows that are searched; the same for one set."""
        ...


def evaluation_drawings(
    evaluated: Evaluated, other: Evaluated | None = None, *, memory_budget: int = MEMORY_BUDGET
) -> list[Drawing]:
    """Return precision-recall, ROC and distances over all pairs, of one model or of two in the same figures.

    Pairs are counted strip by strip, within ``memory_budget`` bytes beyond the vectors.
    """
    models = [evaluated] if other is None else [evaluated, other]
    curves = {name: _curves(model, memory_budget) for name, model in zip(_names(models), models, strict=True)}
    return [_precision_recall(curves), _roc(curves), _distances(curves)]


def _names(models: Sequence[Evaluated]) -> list[str]:
    names = [model.name for model in models]
    return names if len(set(names)) == len(names) else [f"{name} ({number})" for number, name in enumerate(names, 1)]


def _curves(model: Evaluated, memory_budget: int) -> PairCurves:
    query, gallery = np.asarray(model.query), np.asarray(model.gallery)
    labels = np.asarray(model.labels)
    if np.array_equal(query, gallery):
        return pair_curves(model.vectors[query], labels[query], bits=_BITS, memory_budget=memory_budget)
    place = np.full(len(labels), -1)
    place[gallery] = np.arange(len(gallery))
    return pair_curves(
        *(model.vectors[query], labels[query], model.vectors[gallery], labels[gallery], place[query]),
        bits=_BITS,
        memory_budget=memory_budget,
    )


def _precision_recall(models: dict[str, PairCurves]) -> Drawing:
    numbers: dict[str, Any] = {}
    with house_style():
        figure, axes = new_axes(COLUMN, 2.5)
        for number, (name, curves) in enumerate(models.items()):
            some = np.flatnonzero(np.diff(curves.true_accepted + curves.false_accepted, prepend=0) > 0)
            recall, precision = curves.recall[some], curves.precision[some]
            shown = spaced(recall, precision)
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
    caption = f"{_of_pairs(first)} AP is the average precision over all pairs together, in percent."
    return Drawing("precision_recall", "Precision and recall over pairs", caption, numbers, figure)


def _roc(models: dict[str, PairCurves]) -> Drawing:
    numbers: dict[str, Any] = {}
    with house_style():
        figure, axes = new_axes(COLUMN, 2.5)
        lowest = max(1e-5, min(1 / max(1, curves.false_accepted[-1]) for curves in models.values()))
        for number, (name, curves) in enumerate(models.items()):
            some = np.flatnonzero(np.diff(curves.true_accepted + curves.false_accepted, prepend=0) > 0)
            wrong, right = curves.false_positive_rate[some], curves.recall[some]
            shown = spaced(1 + np.log10(np.maximum(wrong, lowest)) / -np.log10(lowest), right)
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
        f"{_of_pairs(next(iter(models.values())))} The axis of the false positive rate is logarithmic: a search meets "
        "far more negative pairs than positive ones. AUC is the area under the curve on plain axes, in percent."
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
        "Cosine distances (1 - similarity) of all pairs of the same class and of different classes, each kind adding "
        f"up to 100%, in bins of {2 / _BINS:g}."
    )
    return Drawing("distances", "Distances inside and between classes", caption, numbers, figure)


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
        "cosine similarity reaches a threshold, which falls along the curve."
    )
