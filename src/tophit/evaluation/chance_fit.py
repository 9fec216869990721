"""Fitting a calibration to searches whose right answers are known.

There are two curves: one by the labels of results, which says how likely each label is, and one by scores alone, for
results without a label. What both tell is lowered for a query that is less like its first result than queries with a
right one are (:func:`familiarity`): no curve has seen pictures of something else altogether.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tophit.evaluation.calibration_features import RankedLists, class_features, result_features
from tophit.evaluation.chance_curve import ChanceCurve, class_folds, logistic_regression, rising_curve

_RANKS = np.array([*range(10), 14, 19, 29, 49])  # from 0: the results that the curve by scores is learned from
_LABELLED_RANKS = _RANKS[:10]
_RARE = 0.05  # a share of right first results; where fewer have so low a score, chances are lowered
_QUANTILES = 500

Table = Callable[[RankedLists], np.ndarray]


def fit_by_scores(lists: Sequence[RankedLists], seed: int) -> ChanceCurve:
    """Learn the chances of results by their scores."""

    def features(each: RankedLists) -> np.ndarray:
        return result_features(each.scores, each.items, each.per_class)

    return _fit(lists, _RANKS, features, _falling, seed)


def fit_by_labels(lists: Sequence[RankedLists], seed: int) -> ChanceCurve:
    """Learn the chances of results by what is known about their labels."""

    def features(each: RankedLists) -> np.ndarray:
        return class_features(each.scores, each.labels, each.items, each.per_class)

    return _fit(lists, _LABELLED_RANKS, features, lambda sums, _: sums, seed)


def right_scores(lists: Sequence[RankedLists]) -> np.ndarray:
    """Return the scores of right first results, in rising order: all, or quantiles of many."""
    found = np.sort(np.concatenate([each.scores[:, 0][each.right[:, 0]] for each in lists]))
    return found if len(found) <= _QUANTILES else np.quantile(found, np.linspace(0, 1, _QUANTILES))


def familiarity(scores: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return what chances are multiplied by (Q, 1): 1, but less where few right first results have so low a score.

    ``right`` are the scores of right first results, in rising order.
    """
    share = (1 + np.searchsorted(right, np.nan_to_num(scores[:, :1]), side="right")) / (1 + len(right))
    return np.minimum(1.0, share / _RARE)


def falling_sums(curve: ChanceCurve, scores: np.ndarray, items: int, per_class: float) -> np.ndarray:
    """Return the sums (Q, D) of a curve by scores for ranked lists, each at least as high as those after it."""
    return _falling(curve.sums(result_features(scores, items, per_class)), scores)


def _falling(sums: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Raise sums (Q, D) to the highest of a later result: a result is no less likely than one with a lower score."""
    there = np.where(np.isfinite(scores), sums, -np.inf)
    return np.maximum.accumulate(there[:, ::-1], axis=1)[:, ::-1]


def _fit(
    lists: Sequence[RankedLists],
    places: np.ndarray,
    features: Table,
    ordered: Callable[[np.ndarray, np.ndarray], np.ndarray],
    seed: int,
) -> ChanceCurve:
    """Learn a curve from the results at some places (from 0) of all lists; ``ordered`` turns sums into those told.

    The weights come from all galleries, so that they know sizes. The curve comes from the whole one, which is most like
    those to come, and from sums whose weights come from other classes, as they will be for new ones.
    """
    ranks = [places[each.scores.shape[1] > places] for each in lists]
    there = [np.isfinite(each.scores[:, some]) for each, some in zip(lists, ranks, strict=True)]

    def chosen(tables: Sequence[np.ndarray]) -> np.ndarray:
        """Return the rows that are learned from, of a table (Q, D, ...) for each of the lists."""
        return np.concatenate([table[:, some][used] for table, some, used in zip(tables, ranks, there, strict=True)])

    tables = [features(each) for each in lists]

    def sums(weights: np.ndarray, intercept: float) -> np.ndarray:
        parts = zip(tables, lists, strict=True)
        return chosen([ordered(table @ weights + intercept, each.scores) for table, each in parts])

    largest = max(each.items for each in lists)
    rows, right = chosen(tables), chosen([each.right for each in lists])
    classes = chosen([np.broadcast_to(each.classes[:, None], each.scores.shape) for each in lists])
    whole = chosen([np.full(each.scores.shape, each.items == largest) for each in lists])
    folds = class_folds(classes, seed)
    others = np.empty(len(right))
    for fold in np.unique(folds):
        own = folds == fold
        others[own] = sums(*logistic_regression(rows[~own], right[~own]))[own]
    weights, intercept = logistic_regression(rows, right)
    return ChanceCurve(weights, intercept, *rising_curve(others[whole], right[whole], classes[whole], seed))
