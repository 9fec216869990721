"""Confidence: how much a mean depends on the classes or queries of the test set, and whether two models differ.

Queries of one class are not independent, so by default whole classes are drawn, each with all its queries.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tophit.evaluation.inputs import Array, check_level, encode_labels

Unit = Literal["classes", "queries"]
_BLOCK = 2**22  # drawn units in memory at a time


@dataclass(frozen=True)
class PairedDifference:
    """The mean over queries of one model's metric minus the other's, its interval, and p-values for no difference."""

    mean: float
    low: float
    high: float
    p_bootstrap: float
    p_permutation: float


def bootstrap_intervals(
    per_query: Mapping[str, np.ndarray],
    classes: Array,
    level: float = 0.95,
    over: Unit = "classes",
    draws: int = 2000,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Return the percentile bootstrap interval of the mean of every metric (N,); NaN values are left out.

    Each draw takes as many units (``classes`` or ``queries``) as there are, with replacement; all metrics of the same
    queries share it. Metrics may leave out different queries: at a coarse level of a hierarchy more have an answer.
    """
    check_level(level)
    tails = [(1 - level) / 2, (1 + level) / 2]
    together: dict[bytes, dict[str, np.ndarray]] = {}
    for name, values in per_query.items():
        together.setdefault(np.isnan(np.asarray(values, np.float64)).tobytes(), {})[name] = values
    found = {}
    for part in together.values():
        bounds = np.quantile(_bootstrap_means(part, classes, over, draws, seed), tails, axis=0).T
        found |= {name: (float(low), float(high)) for name, (low, high) in zip(part, bounds, strict=True)}
    return {name: found[name] for name in per_query}


def paired_difference(
    values: np.ndarray,
    other: np.ndarray,
    classes: Array,
    level: float = 0.95,
    over: Unit = "classes",
    draws: int = 10_000,
    seed: int = 0,
) -> PairedDifference:
    """Compare two models by a metric (N,) each on the same queries; a query that is NaN for either is left out.

    Bootstrap: the interval of the mean difference, and twice the smaller share of draws on one side of 0. Permutation:
    the share of random swaps of the two models, unit by unit, whose difference is at least as large as the observed
    one. Both p-values count the data as one more draw, so the smallest is about 1 / draws.
    """
    check_level(level)
    values, other = np.asarray(values, np.float64), np.asarray(other, np.float64)
    if values.shape != other.shape or values.ndim != 1:
        raise ValueError(f"both models need a value for each of the same queries, got {values.shape} and {other.shape}")
    difference = values - other
    sums, counts = _unit_sums({"difference": difference}, classes, over)
    if not counts.sum():
        raise ValueError("no query has a value for both models, so there is nothing to compare")
    means = _bootstrap_means({"difference": difference}, classes, over, draws, seed)[:, 0]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    one_side = min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    return PairedDifference(
        mean=float(sums.sum() / counts.sum()),
        low=float(low),
        high=float(high),
        p_bootstrap=float(min(1.0, 2 * (one_side + 1) / (draws + 1))),
        p_permutation=_permutation_p(sums[:, 0], draws, seed),
    )


def _permutation_p(sums: np.ndarray, draws: int, seed: int) -> float:
    """Return how often random signs of the units' sums (units,) give a total at least as far from 0 as observed."""
    generator = np.random.default_rng(seed)
    seen = abs(sums.sum()) * (1 - 1e-12)  # totals that differ only by rounding count as equal
    as_far = 0
    for size in _blocks(draws, len(sums)):
        signs = generator.integers(0, 2, (size, len(sums)), dtype=np.int8) * np.int8(2) - np.int8(1)
        as_far += int(np.count_nonzero(abs(signs @ sums) >= seen))
    return (as_far + 1) / (draws + 1)


def _bootstrap_means(
    per_query: Mapping[str, np.ndarray], classes: Array, over: Unit, draws: int, seed: int
) -> np.ndarray:
    """Return the mean of every metric in every draw: (draws, metrics)."""
    sums, counts = _unit_sums(per_query, classes, over)
    if not len(sums):
        return np.full((1, len(per_query)), np.nan)
    generator = np.random.default_rng(seed)
    parts = []
    for size in _blocks(draws, len(sums)):
        drawn = generator.integers(0, len(sums), (size, len(sums)))
        drawn += np.arange(size)[:, None] * len(sums)
        times = np.bincount(drawn.ravel(), minlength=size * len(sums)).reshape(size, -1).astype(np.float64)
        parts.append((times @ sums) / (times @ counts)[:, None])
    return np.concatenate(parts)


def _unit_sums(per_query: Mapping[str, np.ndarray], classes: Array, over: Unit) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of every metric (units, metrics) and the number of queries (units,) of each unit that has any."""
    if over not in ("classes", "queries"):
        raise ValueError(f"intervals must be over 'classes' or 'queries', not '{over}'")
    table = np.stack([np.asarray(values, np.float64) for values in per_query.values()], axis=1)
    (codes,) = encode_labels(classes)
    if len(codes) != len(table):
        raise ValueError(f"{len(table)} queries but {len(codes)} classes; every query needs its class")
    counted = ~np.isnan(table).any(axis=1)
    table, codes = table[counted], codes[counted]
    if over == "queries":
        return table, np.ones(len(table))
    counts = np.bincount(codes).astype(np.float64)
    sums = np.stack([np.bincount(codes, weights=column) for column in table.T], axis=1)
    return sums[counts > 0], counts[counts > 0]


def _blocks(draws: int, units: int) -> Iterator[int]:
    """Yield how many draws to make at a time so that memory stays bounded."""
    size = max(1, _BLOCK // max(1, units))
    for start in range(0, draws, size):
        yield min(size, draws - start)
