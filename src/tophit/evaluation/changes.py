"""Two models on the same queries: how results moved, and which queries got better or worse."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tophit.evaluation.confidence import PairedDifference, paired_difference

Item = TypeVar("Item", bound=Hashable)


def rank_changes(before: Sequence[Item], after: Sequence[Item]) -> tuple[list[int | None], list[Item]]:
    """Return how many ranks each item of ``after`` moved up, None if it is new, and the items that were lost.

    >>> rank_changes([7, 8, 9], [9, 7, 5])
    ([2, -1, None], [8])
    """
    old = {item: place for place, item in enumerate(before)}
    moved = [old[item] - place if item in old else None for place, item in enumerate(after)]
    kept = set(after)
    return moved, [item for item in before if item not in kept]


@dataclass(frozen=True)
class WonAndLost:
    """The queries that a model answers better and worse than another, by average precision, largest change first.

    ``difference`` is the mean over all queries with its interval over classes, None if no query has a right answer.
    """

    won: list[int]
    lost: list[int]
    equal: int
    difference: PairedDifference | None


def won_and_lost(values: np.ndarray, other: np.ndarray, labels: np.ndarray) -> WonAndLost:
    """Compare the average precision (Q,) of a model with that of another on the same queries with labels (Q,)."""
    change = np.asarray(values, np.float64) - np.asarray(other, np.float64)
    counted = np.flatnonzero(~np.isnan(change))
    order = counted[np.argsort(-change[counted], kind="stable")]
    won = order[change[order] > 0]
    lost = order[::-1][change[order[::-1]] < 0]
    return WonAndLost(
        won.tolist(),
        lost.tolist(),
        len(counted) - len(won) - len(lost),
        paired_difference(values, other, labels) if len(counted) else None,
    )
