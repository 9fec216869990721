"""How well chances hold: told against right, known queries against unknown ones, and what a cut-off costs.

All intervals are 95% bootstrap intervals over classes.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from tophit.evaluation.confidence import bootstrap_intervals
from tophit.evaluation.inputs import encode_labels

SHOWN = 10
"""Results of a query that are checked."""
_EDGES = (0.0, 0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.0)
_CUT_OFFS = (0.0, *(round(0.05 * step, 2) for step in range(1, 20)))
_DRAWS = 1000
_POINTS = 100  # of an ROC curve


@dataclass(frozen=True)
class Told:
    """What was told about searches: the chance of each result (Q, D), of the name (Q,), and what was right.

    ``known`` (Q,) says whether the query's class was in the gallery; ``classes`` (Q,) are the queries' own.
    """

    chances: np.ndarray
    right: np.ndarray
    name_chances: np.ndarray
    name_right: np.ndarray
    known: np.ndarray
    classes: np.ndarray

    @classmethod
    def joined(cls, parts: "Sequence[Told]") -> "Told":
        """Join what was told about several parts of the same searches."""
        return cls(*(np.concatenate([getattr(each, one.name) for each in parts]) for one in fields(cls)))


@dataclass(frozen=True)
class CalibrationCheck:
    """What was measured on classes that did not calibrate; shares, each with its interval where there is one.

    ``reliability`` has a row for each range of told chances of the first ten results: ``told`` on average, ``right``,
    ``low``, ``high``, ``results``. ``cut_offs`` has one for each least chance: the share of right results ``kept``,
    and how much of what is shown is ``right``. ``open_set`` says how well names and unknown queries are told apart:
    ``auroc``, ``accuracy`` on known queries, ``unknown_told`` as unknown, the last two at a cut-off of 0.5.
    ``roc`` are shares of unknown queries taken for known, and of known queries taken for known. ``by_scores`` is the
    reliability of what is told about results without labels.
    """

    reliability: list[dict[str, float]]
    cut_offs: list[dict[str, float]]
    open_set: dict[str, list[float]]
    roc: list[list[float]]
    by_scores: list[dict[str, float]] = field(default_factory=list)

    def near(self, chance: float, labelled: bool = True) -> dict[str, float] | None:
        """Return the row of the results that are told about this chance, such as 0.9; None if there are none."""
        rows = [row for row in (self.reliability if labelled else self.by_scores) if row["from"] <= chance < row["to"]]
        return rows[0] if rows else None


def check_told(told: Told, by_scores: Told | None = None, cut_off: float = 0.5) -> CalibrationCheck:
    """Measure how well chances held, by labels and, where it is given, by scores alone."""
    return CalibrationCheck(
        _reliability(*_first_results(told)),
        _cut_offs(*_first_results(told)),
        _open_set(told, cut_off),
        _roc(told.name_chances, told.known),
        [] if by_scores is None else _reliability(*_first_results(by_scores)),
    )


def reliability_of(told: Told, low: float = 0.85, high: float = 0.95) -> dict[str, float]:
    """Return what came of the first ten results that were told a chance from ``low`` to ``high``."""
    return _row(*_first_results(told), low, high)


def _first_results(told: Told) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return chance, outcome and query's class of the first ten results of all queries, one after another."""
    chances, right = told.chances[:, :SHOWN], told.right[:, :SHOWN]
    return chances.ravel(), right.ravel(), np.repeat(encode_labels(told.classes)[0], chances.shape[1])


def _row(chances: np.ndarray, right: np.ndarray, classes: np.ndarray, low: float, high: float) -> dict[str, float]:
    some = (chances >= low) & ((chances < high) | (high >= 1)) & (chances > 0)
    row = {"from": low, "to": high, "results": int(some.sum())}
    if not some.any():
        return row
    bounds = bootstrap_intervals({"right": right[some].astype(float)}, classes[some], draws=_DRAWS)["right"]
    return {
        **row,
        "told": float(chances[some].mean()),
        "right": float(right[some].mean()),
        "low": bounds[0],
        "high": bounds[1],
        "classes": len(np.unique(classes[some])),
    }


def _reliability(chances: np.ndarray, right: np.ndarray, classes: np.ndarray) -> list[dict[str, float]]:
    rows = [_row(chances, right, classes, low, high) for low, high in itertools.pairwise(_EDGES)]
    return [row for row in rows if row["results"]]


def _cut_offs(chances: np.ndarray, right: np.ndarray, classes: np.ndarray) -> list[dict[str, float]]:
    """Return for each least chance what share of the right results is kept, and of what is shown is right."""
    rows = []
    for least in _CUT_OFFS:
        kept = np.where(right, chances >= least, np.nan).astype(float)
        shown = np.where((chances >= least) & (chances > 0), right, np.nan).astype(float)
        row: dict[str, float] = {"chance": least}
        bounds = bootstrap_intervals({"kept": kept, "right": shown}, classes, draws=_DRAWS)
        for name, values in (("kept", kept), ("right", shown)):
            if np.isfinite(values).any():
                low, high = bounds[name]
                row |= {name: float(np.nanmean(values)), f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    return rows


def _open_set(told: Told, cut_off: float) -> dict[str, list[float]]:
    """Return each measure with its interval, as far as there are known and unknown queries."""
    named = told.name_chances >= cut_off
    accuracy = np.where(told.known, named & told.name_right, np.nan).astype(float)
    refused = np.where(told.known, np.nan, ~named).astype(float)
    values = {"accuracy": accuracy, "unknown_told": refused}
    values = {name: each for name, each in values.items() if np.isfinite(each).any()}
    bounds = bootstrap_intervals(values, told.classes, draws=_DRAWS)
    found = {name: [float(np.nanmean(each)), *bounds[name]] for name, each in values.items()}
    if told.known.any() and not told.known.all():
        found["auroc"] = list(auroc(told.name_chances, told.known, told.classes))
    return found


def auroc(values: np.ndarray, known: np.ndarray, classes: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Return the chance that a known query has the higher value (N,) than an unknown one, ties half, and its interval.

    Each draw of the bootstrap takes as many classes as there are, with all their queries.
    """
    (codes,) = encode_labels(classes)
    levels = np.unique(values, return_inverse=True)[1]
    generator, found = np.random.default_rng(seed), []
    number = int(codes.max()) + 1
    for draw in range(_DRAWS + 1):
        drawn = generator.integers(0, number, number)
        times = np.bincount(drawn, minlength=number)[codes] if draw else np.ones(len(codes))
        right = np.bincount(levels, weights=times * known)
        wrong = np.bincount(levels, weights=times * ~known)
        pairs = right.sum() * wrong.sum()
        if pairs:
            found.append(float((right * (np.cumsum(wrong) - wrong / 2)).sum() / pairs))
    if not found:
        return float("nan"), float("nan"), float("nan")
    low, high = np.quantile(found[1:] or found, [0.025, 0.975])
    return found[0], float(low), float(high)


def _roc(values: np.ndarray, known: np.ndarray) -> list[list[float]]:
    """Return points of the ROC curve: unknown queries taken for known, known ones taken for known."""
    if known.all() or not known.any():
        return []
    order = np.argsort(-values, kind="stable")
    last = np.flatnonzero(np.diff(values[order], append=-1.0))
    right, wrong = np.cumsum(known[order])[last] / known.sum(), np.cumsum(~known[order])[last] / (~known).sum()
    points: list[Any] = [(0.0, 0.0), *zip(wrong.tolist(), right.tolist(), strict=True)]
    step = max(1, len(points) // _POINTS)
    return [[round(x, 5), round(y, 5)] for x, y in [*points[:-1:step], points[-1]]]
