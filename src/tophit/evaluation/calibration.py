"""Calibration: the chance that a search result is right, and that a name is, learned from labelled vectors.

>>> generator = np.random.default_rng(0)
>>> centres = generator.normal(size=(30, 16))
>>> vectors = np.repeat(centres, 8, axis=0) + 0.5 * generator.normal(size=(240, 16))
>>> found = calibrate(vectors, np.repeat(np.arange(30), 8))
>>> chances = found.chances(np.array([[0.95, 0.93, 0.4, 0.3, 0.2]]), items=240)
>>> bool(chances[0, 0] > 0.8 > 0.2 > chances[0, 4])
True
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from tophit.evaluation.calibration_check import CalibrationCheck, Told, check_told
from tophit.evaluation.calibration_features import RankedLists, name_features, votes
from tophit.evaluation.chance_curve import FOLDS, ChanceCurve, class_folds
from tophit.evaluation.chance_fit import falling_sums, fit_names, fit_results
from tophit.evaluation.inputs import Array

LEAST_CLASSES = 8
FEW_CLASSES = 50
UNKNOWN = 0.2
CUT_OFF = 0.5
# Galleries: all classes three times, then fewer classes and fewer items of each, so that chances follow the sizes.
_GALLERIES: tuple[tuple[float, int | None], ...] = (
    (1, None),
    (1, None),
    (1, None),
    (0.5, None),
    (0.25, None),
    (1, 3),
    (0.5, 3),
    (0.25, 3),
)


class TooFewClassesError(ValueError):
    """There are too few classes to calibrate with; ``classes`` says how many there are."""

    def __init__(self, classes: int) -> None:
        super().__init__(
            f"a calibration needs at least {LEAST_CLASSES} classes with something to find, not {classes}; "
            f"{FEW_CLASSES} or more make it good"
        )
        self.classes = classes


@dataclass(frozen=True)
class Calibration:
    """How scores become chances, and how well that held for classes that did not calibrate.

    ``unknown`` is the share of queries without their class in the gallery that it expects. ``classes``, ``queries``,
    ``items`` and ``per_class`` (items of a class) say what it was learned from.
    """

    results: ChanceCurve
    names: ChanceCurve
    unknown: float
    classes: int
    queries: int
    items: int
    per_class: float
    check: CalibrationCheck

    def chances(self, scores: np.ndarray, items: int, per_class: float | None = None) -> np.ndarray:
        """Return the chance (Q, D) of each result of ranked lists (Q, D) to be right; 0 where the score is NaN.

        ``scores`` are the cosines of the first 100 results or more, best first; a shorter list only if there are no
        more. ``items`` are searched, ``per_class`` of a class on average (default: as in the calibration). No result
        is told a higher chance than one before it.
        """
        scores = np.atleast_2d(np.asarray(scores, float))
        sums = falling_sums(self.results, scores, items, per_class or self.per_class)
        return np.where(np.isfinite(scores), self.results.chances(sums), 0.0)

    def names_of(
        self, scores: np.ndarray, labels: np.ndarray, items: int, per_class: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the label (Q,) that the first results vote for, -1 if there are none, and its chance (Q,).

        ``labels`` (Q, D) are the results' labels as numbers, -1 for none; the rest is as for :meth:`chances`.
        """
        scores, labels = np.atleast_2d(np.asarray(scores, float)), np.atleast_2d(labels)
        features = name_features(scores, labels, items, per_class or self.per_class)
        found, _ = votes(scores, labels)
        return found, np.where(found >= 0, self.names.chances(self.names.sums(features)), 0.0)

    @property
    def is_rough(self) -> bool:
        """Whether few classes calibrated, so that chances are rough."""
        return self.classes < FEW_CLASSES

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        plain = {name: getattr(self, name) for name in ("unknown", "classes", "queries", "items", "per_class")}
        curves = {"results": self.results.to_json(), "names": self.names.to_json()}
        return {**plain, **curves, "check": asdict(self.check)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Read it from plain values."""
        return cls(
            ChanceCurve.from_json(fields["results"]),
            ChanceCurve.from_json(fields["names"]),
            float(fields["unknown"]),
            int(fields["classes"]),
            int(fields["queries"]),
            int(fields["items"]),
            float(fields["per_class"]),
            CalibrationCheck(**fields["check"]),
        )


def calibrate(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    own_items: Array | None = None,
    *,
    unknown: float = UNKNOWN,
    seed: int = 0,
) -> Calibration:
    """Learn chances from vectors (N, d) with labels (N,), best of classes that the model did not learn.

    Without a gallery every vector searches all others; ``own_items`` are the places of the queries in a gallery, -1 for
    none. Of the queries a share ``unknown`` searches without its own class. The check tells each class by what the
    others taught. Raises :class:`TooFewClassesError` with fewer than 8 classes of two vectors.
    """
    if not 0 <= unknown < 1:
        raise ValueError(f"the share of unknown queries must be from 0 to less than 1, not {unknown}")
    from tophit.evaluation.ranked_lists import Labelled, draw_lists  # here, because it imports torch

    data = Labelled.of(embeddings, labels, gallery, gallery_labels, own_items)
    classes = np.unique(data.query_classes[data.askers()])
    if len(classes) < LEAST_CLASSES:
        raise TooFewClassesError(len(classes))
    generator = np.random.default_rng(seed)
    drawn = [draw_lists(data, unknown, generator, share, most) for share, most in _GALLERIES]
    lists = [each for each in drawn if each is not None]
    if not lists:
        raise TooFewClassesError(len(classes))
    whole = lists[0]
    return Calibration(
        results=fit_results(lists, seed),
        names=fit_names(lists, seed),
        unknown=unknown,
        classes=len(classes),
        queries=sum(len(each.classes) for each in lists),
        items=whole.items,
        per_class=whole.per_class,
        check=check_told(_told_by_others(lists, seed)),
    )


def told(calibration: Calibration, lists: RankedLists) -> Told:
    """Return what a calibration tells about searches whose right answers are known."""
    names, name_chances = calibration.names_of(lists.scores, lists.labels, lists.items, lists.per_class)
    return Told(
        chances=calibration.chances(lists.scores, lists.items, lists.per_class),
        right=lists.right,
        name_chances=name_chances,
        name_right=(names == lists.classes) & lists.known,
        known=lists.known,
        classes=lists.classes,
    )


def _told_by_others(lists: Sequence[RankedLists], seed: int) -> Told:
    """Return what is told about the searches of the whole gallery, each class by curves that the others taught."""
    whole = lists[0]
    folds = class_folds(np.concatenate([each.classes for each in lists]), seed + 1)
    splits = np.split(folds, np.cumsum([len(each.classes) for each in lists])[:-1])
    chances = np.zeros(whole.scores.shape)
    name_chances = np.zeros(len(whole.classes))
    found, _ = votes(whole.scores, whole.labels)
    names = name_features(whole.scores, whole.labels, whole.items, whole.per_class)
    for fold in range(FOLDS):
        own = splits[0] == fold
        if not own.any():
            continue
        others = [_part(each, split != fold) for each, split in zip(lists, splits, strict=True)]
        result_curve, name_curve = fit_results(others, seed), fit_names(others, seed)
        sums = falling_sums(result_curve, whole.scores[own], whole.items, whole.per_class)
        chances[own] = np.where(np.isfinite(whole.scores[own]), result_curve.chances(sums), 0.0)
        name_chances[own] = np.where(found[own] >= 0, name_curve.chances(name_curve.sums(names[own])), 0.0)
    right = (found == whole.classes) & whole.known
    return Told(chances, whole.right, name_chances, right, whole.known, whole.classes)


def _part(lists: RankedLists, rows: np.ndarray) -> RankedLists:
    scores, labels, classes, known = (part[rows] for part in (lists.scores, lists.labels, lists.classes, lists.known))
    return RankedLists(scores, labels, classes, known, lists.items, lists.per_class)
