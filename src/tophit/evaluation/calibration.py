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
from tophit.evaluation.calibration_features import RankedLists, class_features, first_of_label
from tophit.evaluation.chance_curve import ChanceCurve, class_folds
from tophit.evaluation.chance_fit import falling_sums, familiarity, fit_by_labels, fit_by_scores, right_scores
from tophit.evaluation.inputs import Array

LEAST_CLASSES = 8
FEW_CLASSES = 50
_VERY_FEW_CLASSES = 25  # below it, what they tell about labels is too high in a much larger gallery
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
class Chances:
    """How scores and labels become chances: one model for results and for names.

    ``by_labels`` tells how likely each label is; ``by_scores`` is for results without a label. ``right_scores`` are
    scores of right first results, in rising order; None in files of earlier versions, whose ``by_labels`` holds for the
    most likely label only. ``careful``: very few classes taught it, so a label is not told more than its best score
    alone would be.
    """

    by_scores: ChanceCurve
    by_labels: ChanceCurve
    right_scores: np.ndarray | None
    careful: bool = False

    @classmethod
    def fitted(cls, lists: Sequence[RankedLists], seed: int, careful: bool = False) -> Self:
        """Learn them from searches whose right answers are known."""
        return cls(fit_by_scores(lists, seed), fit_by_labels(lists, seed), right_scores(lists), careful)

    def of_results(self, scores: np.ndarray, labels: np.ndarray | None, items: int, per_class: float) -> np.ndarray:
        """Return the chance (Q, D) of each result: that of its label, or by its score if it has none."""
        told = self._of_scores(scores, items, per_class)
        if labels is None or self.right_scores is None:
            return told
        return np.where(labels >= 0, self.of_labels(scores, labels, items, per_class), told)

    def of_labels(self, scores: np.ndarray, labels: np.ndarray, items: int, per_class: float) -> np.ndarray:
        """Return the chance (Q, D) of the label of each result; 0 where it has none."""
        told = self.by_labels.chances(self.by_labels.sums(class_features(scores, labels, items, per_class)))
        told = np.where(np.isfinite(scores) & (labels >= 0), told * self._familiarity(scores), 0.0)
        if not self.careful:
            return told
        best = np.take_along_axis(self._of_scores(scores, items, per_class), first_of_label(labels), 1)
        return np.minimum(told, best)

    def _of_scores(self, scores: np.ndarray, items: int, per_class: float) -> np.ndarray:
        told = self.by_scores.chances(falling_sums(self.by_scores, scores, items, per_class))
        return np.where(np.isfinite(scores), told * self._familiarity(scores), 0.0)

    def _familiarity(self, scores: np.ndarray) -> np.ndarray | float:
        return 1.0 if self.right_scores is None else familiarity(scores, self.right_scores)


@dataclass(frozen=True)
class Calibration:
    """How scores become chances, and how well that held for classes that did not calibrate.

    ``unknown`` is the share of queries without their class in the gallery that it expects. ``classes``, ``queries``,
    ``items`` and ``per_class`` (items of a class) say what it was learned from.
    """

    model: Chances
    unknown: float
    classes: int
    queries: int
    items: int
    per_class: float
    check: CalibrationCheck

    def chances(
        self, scores: np.ndarray, items: int, per_class: float | None = None, labels: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the chance (Q, D) of each result of ranked lists (Q, D) to be right; 0 where the score is NaN.

        ``scores`` are the cosines of the first 100 results or more, best first; a shorter list only if there are no
        more. ``items`` are searched, ``per_class`` of a class on average (default: as in the calibration). ``labels``
        (Q, D) are the results' labels as numbers, -1 for none: all results of a label have the same chance. By scores
        alone, no result is told a higher chance than one before it.
        """
        scores = np.atleast_2d(np.asarray(scores, float))
        labels = None if labels is None else np.atleast_2d(labels)
        return self.model.of_results(scores, labels, items, per_class or self.per_class)

    def label_chances(
        self, scores: np.ndarray, labels: np.ndarray, items: int, per_class: float | None = None
    ) -> np.ndarray:
        """Return the chance (Q, D) of the label of each result; 0 where it has none. As for :meth:`chances`."""
        scores, labels = np.atleast_2d(np.asarray(scores, float)), np.atleast_2d(labels)
        return self.model.of_labels(scores, labels, items, per_class or self.per_class)

    @property
    def is_old(self) -> bool:
        """Whether an earlier version made it, which told results and names by different rules."""
        return self.model.right_scores is None

    @property
    def is_rough(self) -> bool:
        """Whether few classes calibrated, so that chances are rough."""
        return self.classes < FEW_CLASSES

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        plain = {name: getattr(self, name) for name in ("unknown", "classes", "queries", "items", "per_class")}
        curves = {"results": self.model.by_scores.to_json(), "names": self.model.by_labels.to_json()}
        right = None if self.model.right_scores is None else self.model.right_scores.tolist()
        return {**plain, **curves, "right_scores": right, "careful": self.model.careful, "check": asdict(self.check)}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Read it from plain values."""
        right = fields.get("right_scores")
        by_scores, by_labels = (ChanceCurve.from_json(fields[name]) for name in ("results", "names"))
        right = None if right is None else np.asarray(right, float)
        return cls(
            Chances(by_scores, by_labels, right, bool(fields.get("careful"))),
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
    whole, careful = lists[0], len(classes) < _VERY_FEW_CLASSES
    return Calibration(
        model=Chances.fitted(lists, seed, careful),
        unknown=unknown,
        classes=len(classes),
        queries=sum(len(each.classes) for each in lists),
        items=whole.items,
        per_class=whole.per_class,
        check=check_told(*_told_by_others(lists, seed, careful)),
    )


def told(calibration: Calibration, lists: RankedLists, by_scores: bool = False) -> Told:
    """Return what a calibration tells about searches whose right answers are known; results also by scores alone."""
    return _told(calibration.model, lists, by_scores)


def _told(model: Chances, lists: RankedLists, by_scores: bool = False) -> Told:
    sizes = lists.items, lists.per_class
    of_labels = model.of_labels(lists.scores, lists.labels, *sizes)
    best = of_labels.argmax(axis=1)[:, None]
    names, name_chances = (np.take_along_axis(table, best, 1)[:, 0] for table in (lists.labels, of_labels))
    return Told(
        chances=model.of_results(lists.scores, None if by_scores else lists.labels, *sizes),
        right=lists.right,
        name_chances=name_chances,
        name_right=(names == lists.classes) & lists.known,
        known=lists.known,
        classes=lists.classes,
    )


def _told_by_others(lists: Sequence[RankedLists], seed: int, careful: bool) -> tuple[Told, Told]:
    """Return what is told about the searches of the whole gallery, each class by what the others taught.

    Once by labels and once by scores alone.
    """
    folds = class_folds(np.concatenate([each.classes for each in lists]), seed + 1)
    splits = np.split(folds, np.cumsum([len(each.classes) for each in lists])[:-1])
    parts: tuple[list[Told], list[Told]] = ([], [])
    for fold in np.unique(splits[0]):
        others = [_part(each, split != fold) for each, split in zip(lists, splits, strict=True)]
        model, own = Chances.fitted(others, seed, careful), _part(lists[0], splits[0] == fold)
        for found, by_scores in zip(parts, (False, True), strict=True):
            found.append(_told(model, own, by_scores))
    by_labels, by_scores = (Told.joined(found) for found in parts)
    return by_labels, by_scores


def _part(lists: RankedLists, rows: np.ndarray) -> RankedLists:
    scores, labels, classes, known = (part[rows] for part in (lists.scores, lists.labels, lists.classes, lists.known))
    return RankedLists(scores, labels, classes, known, lists.items, lists.per_class)
