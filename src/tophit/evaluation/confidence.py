"""Confidence: how far a metric would move with other classes in the test set."""

import numpy as np


def class_bootstrap(
    values: np.ndarray, classes: np.ndarray, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Return the percentile interval of the mean of ``values`` (N,) when whole classes are drawn with replacement.

    Queries of one class are not independent, so classes are the unit. ``classes`` (N,) are integers from 0.
    """
    counts = np.bincount(classes).astype(np.float64)
    sums = np.bincount(classes, weights=values)
    sums, counts = sums[counts > 0], counts[counts > 0]
    generator = np.random.default_rng(seed)
    weights = generator.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), size=draws)
    means = (weights @ sums) / (weights @ counts)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
