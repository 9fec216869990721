"""Fitting the curves of a calibration to searches whose right answers are known."""

from collections.abc import Callable, Sequence

import numpy as np

from tophit.evaluation.calibration_features import RankedLists, name_features, result_features, votes
from tophit.evaluation.chance_curve import ChanceCurve, class_folds, logistic_regression, rising_curve

_RANKS = np.array([*range(10), 14, 19, 29, 49])  # from 0: the results that are learned from


def fit_results(lists: Sequence[RankedLists], seed: int) -> ChanceCurve:
    """Learn the chances of results."""
    ranks = [_RANKS[each.scores.shape[1] > _RANKS] for each in lists]
    there = [np.isfinite(each.scores[:, some]) for each, some in zip(lists, ranks, strict=True)]

    def chosen(tables: Sequence[np.ndarray]) -> np.ndarray:
        """Return the rows that are learned from, of a table (Q, D, ...) for each of the lists."""
        return np.concatenate([table[:, some][used] for table, some, used in zip(tables, ranks, there, strict=True)])

    features = [result_features(each.scores, each.items, each.per_class) for each in lists]

    def sums(weights: np.ndarray, intercept: float) -> np.ndarray:
        parts = zip(features, lists, strict=True)
        return chosen([_falling(table @ weights + intercept, each.scores) for table, each in parts])

    right = chosen([each.right for each in lists])
    classes = chosen([np.broadcast_to(each.classes[:, None], each.scores.shape) for each in lists])
    whole = chosen([np.full(each.scores.shape, _is_whole(each, lists)) for each in lists])
    return _fit_curve(chosen(features), right, classes, whole, seed, sums)


def fit_names(lists: Sequence[RankedLists], seed: int) -> ChanceCurve:
    """Learn the chances of names."""
    table = np.concatenate([name_features(each.scores, each.labels, each.items, each.per_class) for each in lists])
    right = np.concatenate([(votes(each.scores, each.labels)[0] == each.classes) & each.known for each in lists])
    classes = np.concatenate([each.classes for each in lists])
    whole = np.concatenate([np.full(len(each.classes), _is_whole(each, lists)) for each in lists])
    return _fit_curve(table, right, classes, whole, seed, lambda weights, intercept: table @ weights + intercept)


def falling_sums(curve: ChanceCurve, scores: np.ndarray, items: int, per_class: float) -> np.ndarray:
    """Return the sums (Q, D) of a curve for ranked lists, each at least as high as those after it."""
    return _falling(curve.sums(result_features(scores, items, per_class)), scores)


def _falling(sums: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Raise sums (Q, D) to the highest of a later result: a result is no less likely than one with a lower score."""
    there = np.where(np.isfinite(scores), sums, -np.inf)
    return np.maximum.accumulate(there[:, ::-1], axis=1)[:, ::-1]


def _fit_curve(
    features: np.ndarray,
    right: np.ndarray,
    classes: np.ndarray,
    whole: np.ndarray,
    seed: int,
    sums: Callable[[np.ndarray, float], np.ndarray],
) -> ChanceCurve:
    """Learn a curve from rows of features (N, F), outcomes and classes (N,); ``sums`` maps weights to the rows' sums.

    The weights come from all galleries, so that they know sizes. The curve comes from the ``whole`` one (N,), which is
    most like those to come, and from sums whose weights come from other classes, as they will be for new ones.
    """
    folds = class_folds(classes, seed)
    others = np.empty(len(right))
    for fold in np.unique(folds):
        own = folds == fold
        others[own] = sums(*logistic_regression(features[~own], right[~own]))[own]
    weights, intercept = logistic_regression(features, right)
    return ChanceCurve(weights, intercept, *rising_curve(others[whole], right[whole], classes[whole], seed))


def _is_whole(one: RankedLists, lists: Sequence[RankedLists]) -> bool:
    return one.items == max(each.items for each in lists)
