"""Means over seeds and classes and how far they may be from the truth. How they are judged is in ``verdicts``.

Every seed is measured on the same test classes, so a metric of a candidate is a table of seeds x classes. Other seeds
and other classes would both have given another mean: seed s moves it by a_s, class c by b_c, both together by e_sc. The
standard error of the mean is estimated from the two margins of the table (analysis of variance with two crossed random
effects). Its interval is Student's with Satterthwaite's degrees of freedom, because there are few seeds. The difference
of two candidates is computed for each seed and class first, which removes what both have in common.
``python -m benchmarks.compare_simulation`` shows how often ties and differences are found this way.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.special import stdtr, stdtrit  # Student's t: its distribution function and the inverse


@dataclass(frozen=True)
class ClassTable:
    """A metric summed over the queries of each class, for every seed: ``sums`` (S, C), ``counts`` (C,) of queries."""

    sums: np.ndarray
    counts: np.ndarray

    @property
    def mean(self) -> float:
        """The mean over queries and seeds."""
        return float(self.sums.sum() / (len(self.sums) * self.counts.sum()))

    def __sub__(self, other: "ClassTable") -> "ClassTable":
        """Return the differences for each seed and class."""
        if self.sums.shape != other.sums.shape or (self.counts != other.counts).any():
            raise ValueError("two candidates must be compared on the same seeds and the same test queries")
        return ClassTable(self.sums - other.sums, self.counts)


@dataclass(frozen=True)
class Estimate:
    """A mean, its interval, the probability that the truth is above 0, and the two-sided p-value of 0."""

    mean: float
    low: float
    high: float
    probability: float
    p: float


def class_table(values: Sequence[np.ndarray], labels: np.ndarray) -> ClassTable:
    """Return the table of a metric, given its value for every query (S arrays of N) and the queries' labels (N,).

    Queries that are NaN, which have nothing to find, are left out; they must be the same for every seed.
    """
    counted = ~np.isnan(np.asarray(values[0], np.float64))
    _, classes = np.unique(np.asarray(labels)[counted], return_inverse=True)
    sums = []
    for each in values:  # one seed at a time: all of them together would not fit into the processor's cache
        row = np.asarray(each, np.float64)
        if (np.isnan(row) == counted).any():
            raise ValueError("the same queries must have a value for every seed")
        sums.append(np.bincount(classes, weights=row[counted]))
    return ClassTable(np.stack(sums), np.bincount(classes).astype(np.float64))


def estimate(table: ClassTable, level: float = 0.95) -> Estimate:
    """Return the mean of a table with its interval over seeds and classes; with one seed, over classes alone."""
    return interval(spread(table), level)


def interval(found: "Spread", level: float = 0.95) -> Estimate:
    """Return a mean with its interval: Student's, with the degrees of freedom of its standard error."""
    mean, error, freedom = found.mean, found.error, found.freedom
    if error == 0:
        known = float(mean > 0) if mean else 0.5
        return Estimate(mean, mean, mean, known, float(mean == 0))
    half = error * float(stdtrit(freedom, (1 + level) / 2))
    probability = float(stdtr(freedom, mean / error))
    p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return Estimate(mean, mean - half, mean + half, probability, p)


class Spread(Protocol):
    """A mean, and how far it may be from the truth: its standard error and the degrees of freedom of that."""

    @property
    def mean(self) -> float:
        """The mean."""
        ...

    @property
    def error(self) -> float:
        """Its standard error."""
        ...

    @property
    def freedom(self) -> float:
        """The degrees of freedom of the standard error."""
        ...

    @property
    def seeds(self) -> int:
        """How many seeds it is from."""
        ...

    def with_seeds(self, seeds: int) -> "Spread":
        """Return what it would be with another number of seeds, if seeds and classes vary as they did."""
        ...


@dataclass(frozen=True)
class TableSpread:
    """The spread of a table's mean, from its mean squares: of seeds, of classes, and the rest.

    A mean square that has no degree of freedom, as that of one seed, is None.
    """

    mean: float
    seeds: int
    classes: int
    of_seeds: float | None
    of_classes: float | None
    rest: float

    @property
    def _parts(self) -> list[tuple[float, int]]:
        """Mean squares and their degrees of freedom; a variance can't be negative."""
        margins = ((self.of_seeds, self.seeds), (self.of_classes, self.classes))
        return [(max(square, self.rest), count - 1) for square, count in margins if square is not None]

    @property
    def _total(self) -> float:
        return sum(square for square, _ in self._parts) - (self.rest if len(self._parts) == 2 else 0.0)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        if not self._parts:
            return math.nan
        return math.sqrt(max(0.0, self._total) / (self.seeds * self.classes))

    @property
    def freedom(self) -> float:
        """Satterthwaite's degrees of freedom."""
        if not self._parts or self._total <= 0:
            return 1.0
        below = sum(square**2 / freedom for square, freedom in self._parts)
        if len(self._parts) == 2:
            below += self.rest**2 / ((self.seeds - 1) * (self.classes - 1))
        return self._total**2 / below

    def with_seeds(self, seeds: int) -> "TableSpread":
        """Return the spread that more seeds would leave: the mean square of classes grows with what classes differ."""
        if self.of_seeds is None:
            raise ValueError("one seed does not show how seeds differ")
        differ = 0.0 if self.of_classes is None else max(self.of_classes - self.rest, 0.0) / self.seeds
        of_classes = None if self.of_classes is None else self.rest + seeds * differ
        return replace(self, seeds=seeds, of_classes=of_classes)


@dataclass(frozen=True)
class PooledSpread:
    """The mean over several sets, each of the same weight; their errors are independent."""

    parts: tuple[Spread, ...]

    @property
    def mean(self) -> float:
        """The mean of the sets' means."""
        return sum(part.mean for part in self.parts) / len(self.parts)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return math.sqrt(sum(part.error**2 for part in self.parts)) / len(self.parts)

    @property
    def freedom(self) -> float:
        """Satterthwaite's degrees of freedom."""
        below = sum(part.error**4 / part.freedom for part in self.parts)
        return sum(part.error**2 for part in self.parts) ** 2 / below if below else 1.0

    @property
    def seeds(self) -> int:
        """The fewest seeds of a set."""
        return min(part.seeds for part in self.parts)

    def with_seeds(self, seeds: int) -> "PooledSpread":
        """Return the spread with so many seeds on every set."""
        return PooledSpread(tuple(part.with_seeds(seeds) for part in self.parts))


def spread(table: ClassTable) -> TableSpread:
    """Return the spread of a table's mean over seeds and classes.

    The mean over queries weighs classes by their size; ``y`` has the same mean when every class weighs the same (the
    linearised ratio), so that the usual sums of squares hold.
    """
    seeds, classes = table.sums.shape
    y = (table.sums - table.mean * table.counts) * classes / table.counts.sum()
    of_seeds, of_classes, whole = y.mean(axis=1), y.mean(axis=0), y.mean()
    rest = 0.0
    if seeds > 1 and classes > 1:
        residual = y - of_seeds[:, None] - of_classes + whole
        rest = float((residual**2).sum() / ((seeds - 1) * (classes - 1)))
    squares = [
        others * float(((margin - whole) ** 2).sum()) / (len(margin) - 1) if len(margin) > 1 else None
        for margin, others in ((of_seeds, classes), (of_classes, seeds))
    ]
    return TableSpread(table.mean, seeds, classes, squares[0], squares[1], rest)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm): with 0.05, all conclusions together are right 95% of the time.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted
