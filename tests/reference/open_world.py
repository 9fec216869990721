"""A world in which the chance that a result is right can be computed: Gaussian classes, some queries without theirs.

The centre of a class is drawn from N(0, I), its pictures from N(centre, spread^2 I). A query's class is not in the
gallery with a known chance. Given the gallery with its labels, and the query, Bayes' rule gives the exact chance of
every class. What a calibration tells uses less, the scores alone, so the two differ query by query; but among results
that are told 0.9, the exact chances must have a mean of 0.9.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class World:
    """Vectors and labels of pictures, and how they were drawn."""

    vectors: np.ndarray
    labels: np.ndarray
    spread: float

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many pictures each class has."""
        return np.bincount(self.labels)

    @cached_property
    def sums(self) -> np.ndarray:
        """The sum of each class's vectors."""
        return np.stack([self.vectors[self.labels == number].sum(0) for number in range(len(self.sizes))])


def draw_world(
    classes: int, per_class: int, dim: int = 12, spread: float = 0.6, seed: int = 0, sizes: np.ndarray | None = None
) -> World:
    """Draw classes with so many pictures each, or with these ``sizes``."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), per_class if sizes is None else sizes)
    centres = generator.normal(size=(classes, dim))
    return World(centres[labels] + spread * generator.normal(size=(len(labels), dim)), labels, spread)


def exact_chances(world: World, query: int, known: bool, unknown: float) -> np.ndarray:
    """Return the chance of every class to be the query's, given all other pictures; 0 for the class that was left out.

    A class with n pictures of mean m has the centre N(n m / (n + s^2), s^2 / (n + s^2) I) by its pictures, and so a
    picture N(n m / (n + s^2), (s^2 / (n + s^2) + s^2) I). An unknown class gives N(0, (1 + s^2) I).
    """
    variance, point, own = world.spread**2, world.vectors[query], int(world.labels[query])
    sums, sizes = world.sums.copy(), world.sizes.astype(float)
    sums[own] -= point
    sizes[own] -= 1
    there = sizes > 0
    there[own] &= known
    means = sums[there] / (sizes[there] + variance)[:, None]
    around = variance / (sizes[there] + variance) + variance
    logs = np.full(len(sizes), -np.inf)
    logs[there] = _log_normal(point - means, around) + np.log((1 - unknown) / there.sum())
    nowhere = _log_normal(point, 1 + variance) + np.log(unknown) if unknown else -np.inf
    top = max(logs.max(), nowhere)
    weights = np.exp(logs - top)
    return weights / (weights.sum() + np.exp(nowhere - top))


def _log_normal(difference: np.ndarray, variance: np.ndarray | float) -> np.ndarray:
    """Return the logarithm of the density of N(0, variance I) at differences (..., dim)."""
    dim = difference.shape[-1]
    return -0.5 * (difference**2).sum(axis=-1) / variance - 0.5 * dim * np.log(2 * np.pi * variance)
