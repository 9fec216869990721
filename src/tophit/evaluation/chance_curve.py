"""From features to chances: logistic regression gives one number, and a rising curve its chance.

The curve is the mean of isotonic regressions over draws of classes, on numbers for classes that the regression did not
see. It is pulled towards the base rate as if two more classes had told nothing, so that few classes can't claim much.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

FOLDS = 5
_DRAWS = 20
_SILENT_CLASSES = 2  # that tell nothing but the base rate
_RIDGE = 1.0
_KNOTS = 80


@dataclass(frozen=True)
class ChanceCurve:
    """A linear function of features (F,), and the chance at each of its values: a broken line through ``knots``."""

    weights: np.ndarray
    intercept: float
    knots: np.ndarray
    values: np.ndarray

    def sums(self, features: np.ndarray) -> np.ndarray:
        """Map features (..., F) to the number that the chance rises with (...)."""
        return features @ self.weights + self.intercept

    def chances(self, sums: np.ndarray) -> np.ndarray:
        """Map these numbers to chances, of any shape."""
        return np.interp(sums, self.knots, self.values)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        plain = {name: getattr(self, name).tolist() for name in ("weights", "knots", "values")}
        return {**plain, "intercept": self.intercept}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Read it from plain values."""
        weights, knots, values = (np.asarray(fields[name], float) for name in ("weights", "knots", "values"))
        if not (len(knots) == len(values) > 0 and np.isfinite(weights).all() and np.isfinite(values).all()):
            raise ValueError("a curve has a finite chance at each of its knots")
        return cls(weights, float(fields["intercept"]), knots, values)


def logistic_regression(features: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, float]:
    """Return weights (F,) and intercept of the chance of ``right`` (N,) by features (N, F), slightly regularised.

    Newton's method on standardised features, with the penalty of half the squared length of their weights.
    """
    from scipy.special import expit  # here, because a search reads chances and fits none

    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    rows = np.column_stack([(features - mean) / scale, np.ones(len(features))])
    ridge = np.full(rows.shape[1], _RIDGE)
    ridge[-1] = 1e-9
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        chance = expit(rows @ weights)
        slope = rows.T @ (chance - right) + ridge * weights
        curvature = (rows * (chance * (1 - chance) + 1e-12)[:, None]).T @ rows + np.diag(ridge)
        step = np.linalg.solve(curvature, slope)
        weights -= step * min(1.0, 10 / max(1e-12, float(np.abs(step).max())))  # no leaps where classes separate
        if np.abs(step).max() < 1e-8:
            break
    plain = weights[:-1] / scale
    return plain, float(weights[-1] - plain @ mean)


def class_folds(classes: np.ndarray, seed: int, folds: int = FOLDS) -> np.ndarray:
    """Return the fold (N,) of each row; all rows of a class are in the same one."""
    names, number = np.unique(classes, return_inverse=True)
    return (np.random.default_rng(seed).permutation(len(names)) % folds)[number]


def rising_curve(sums: np.ndarray, right: np.ndarray, classes: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return knots and chances of the curve for rows with these sums, outcomes and classes (N,)."""
    from scipy.optimize import isotonic_regression

    names, number = np.unique(classes, return_inverse=True)
    order = np.argsort(sums, kind="stable")
    sums, right, number = sums[order], right[order].astype(float), number[order]
    places = np.concatenate([np.linspace(0, 0.9, _KNOTS // 2), np.linspace(0.9, 1, _KNOTS // 2 + 1)[1:]])
    knots = np.unique(np.quantile(sums, places))
    generator, total = np.random.default_rng(seed), np.zeros(len(knots))
    for _ in range(_DRAWS):
        times = np.bincount(generator.integers(0, len(names), len(names)), minlength=len(names))
        fitted = isotonic_regression(right, weights=times[number] + 1e-9).x
        total += np.interp(knots, sums, fitted)
    values = (len(names) * total / _DRAWS + _SILENT_CLASSES * right.mean()) / (len(names) + _SILENT_CLASSES)
    return knots, np.maximum.accumulate(values)
