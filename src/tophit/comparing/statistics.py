"""Whether a difference is real: means over seeds and classes with intervals, paired differences, ranks with ties.

Every seed is measured on the same test classes, so a metric of a candidate is a table of seeds x classes. Other seeds
and other classes would both have given another mean: seed s moves it by a_s, class c by b_c, both together by e_sc. The
standard error of the mean is estimated from the two margins of the table (analysis of variance with two crossed random
effects). Its interval is Student's with Satterthwaite's degrees of freedom, because there are few seeds. The difference
of two candidates is computed for each seed and class first, which removes what both have in common.
``python -m benchmarks.compare_simulation`` shows how often ties and differences are found this way.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import stdtr, stdtrit  # Student's t: its distribution function and the inverse

DOUBT = 0.05
"""Up to this adjusted p-value a difference counts as real."""


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
    table = np.stack([np.asarray(each, np.float64) for each in values])
    counted = ~np.isnan(table[0])
    if (np.isnan(table) == counted).any():
        raise ValueError("the same queries must have a value for every seed")
    _, classes = np.unique(np.asarray(labels)[counted], return_inverse=True)
    sums = np.stack([np.bincount(classes, weights=row) for row in table[:, counted]])
    return ClassTable(sums, np.bincount(classes).astype(np.float64))


def estimate(table: ClassTable, level: float = 0.95) -> Estimate:
    """Return the mean of a table with its interval over seeds and classes; with one seed, over classes alone."""
    mean = table.mean
    error, freedom = _spread(table)
    if error == 0:
        known = float(mean > 0) if mean else 0.5
        return Estimate(mean, mean, mean, known, float(mean == 0))
    half = error * float(stdtrit(freedom, (1 + level) / 2))
    probability = float(stdtr(freedom, mean / error))
    p = 2 * float(stdtr(freedom, -abs(mean) / error))
    return Estimate(mean, mean - half, mean + half, probability, p)


def _spread(table: ClassTable) -> tuple[float, float]:
    """Return the standard error of a table's mean and its degrees of freedom.

    The mean over queries weighs classes by their size; ``y`` has the same mean when every class weighs the same (the
    linearised ratio), so that the usual sums of squares hold.
    """
    seeds, classes = table.sums.shape
    y = (table.sums - table.mean * table.counts) * classes / table.counts.sum()
    of_seeds, of_classes, whole = y.mean(axis=1), y.mean(axis=0), y.mean()
    parts: list[tuple[float, int]] = []  # mean squares and their degrees of freedom
    rest = 0.0
    if seeds > 1 and classes > 1:
        residual = y - of_seeds[:, None] - of_classes + whole
        rest = float((residual**2).sum() / ((seeds - 1) * (classes - 1)))
    for margin, others in ((of_seeds, classes), (of_classes, seeds)):
        if len(margin) > 1:
            square = others * float(((margin - whole) ** 2).sum()) / (len(margin) - 1)
            parts.append((max(square, rest), len(margin) - 1))  # a variance can't be negative
    if not parts:
        return math.nan, 1.0
    total = sum(square for square, _ in parts) - (rest if len(parts) == 2 else 0.0)
    if total <= 0:
        return 0.0, 1.0
    below = sum(square**2 / freedom for square, freedom in parts)
    if len(parts) == 2:
        below += rest**2 / ((seeds - 1) * (classes - 1))
    return math.sqrt(total / (seeds * classes)), total**2 / below


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


def adjusted_pairs(tables: Mapping[str, ClassTable]) -> dict[frozenset[str], float]:
    """Return the p-value of each pair of candidates, adjusted for the number of all pairs (Holm).

    This is the one judgement of which candidates differ: ranks, tables, figures and sentences all follow from it.
    """
    pairs = list(combinations(tables, 2))
    adjusted = holm([estimate(tables[one] - tables[other]).p for one, other in pairs])
    return {frozenset(pair): p for pair, p in zip(pairs, adjusted, strict=True)}


def ranks(tables: Mapping[str, ClassTable], p_values: Mapping[frozenset[str], float] | None = None) -> dict[str, int]:
    """Return each candidate's rank: one more than the number of candidates that are significantly better.

    ``p_values`` are those of ``adjusted_pairs``. Candidates that the data can't tell apart may share a rank.
    """
    found = adjusted_pairs(tables) if p_values is None else p_values
    rank = dict.fromkeys(tables, 1)
    for one, other in combinations(tables, 2):
        if found[frozenset((one, other))] <= DOUBT:
            rank[other if tables[one].mean > tables[other].mean else one] += 1
    return rank
