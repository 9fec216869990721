"""Chances beside scores, lists that are cut by them, and the answer that nothing is like a query."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tophit.calibrating import StoredCalibration
from tophit.errors import UsageError
from tophit.evaluation.calibration_features import DEPTH
from tophit.search.backend import Hit
from tophit.search.index import Index

NOTHING = "Nothing here is like this."


@dataclass(frozen=True)
class Nothing:
    """Why no result is shown: the best one that there was is too unlikely to be right, or there was none."""

    reason: str
    score: float | None = None
    chance: float | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        score, chance = (None if each is None else round(each, 6) for each in (self.score, self.chance))
        return {"reason": self.reason, "best_score": score, "best_chance": chance}


class Hits(list[Hit]):
    """The results of a query, best first; ``nothing`` says why there are none, if chances left none."""

    nothing: Nothing | None = None


@dataclass(frozen=True)
class LeastChance:
    """Where lists end: the least chance of a result, or the least expected share of right ones among those shown."""

    min_chance: float | None = None
    precision: float | None = None

    def __bool__(self) -> bool:
        return self.min_chance is not None or self.precision is not None

    def check(self, prefix: str) -> None:
        """Refuse values that are not chances."""
        for name, value in ((f"{prefix}min-chance", self.min_chance), (f"{prefix}precision", self.precision)):
            if value is not None and not 0 < value <= 1:
                said = name if prefix else name.replace("-", "_")
                raise UsageError(f"{said} is a chance, above 0 and at most 1, such as 0.9; not {value:g}.")

    def length(self, chances: Sequence[float]) -> int:
        """Return how many of the results with these chances, which fall, are shown.

        The precision keeps as many as have it on average: one more would bring the expected share of right results
        below it.
        """
        told = np.asarray(chances, float)
        kept = np.ones(len(told), bool)
        if self.min_chance is not None:
            kept &= told >= self.min_chance
        if self.precision is not None:
            kept &= np.cumsum(told) / np.arange(1, len(told) + 1) >= self.precision - 1e-12
        return int(np.logical_and.accumulate(kept).sum())

    def nothing(self, best: Hit | None) -> Nothing:
        """Say why nothing is shown."""
        if best is None or best.chance is None:
            return Nothing("There is nothing to find: no item meets the filter.")
        least = max(value for value in (self.min_chance, self.precision) if value is not None)
        words = f"the best result has a chance of {best.chance:.0%} to be right, less than {least:.0%}"
        return Nothing(f"{NOTHING[:-1]}: {words}.", best.score, best.chance)


ANY_CHANCE = LeastChance()


def depth_of(index: Index, k: int, left_out: int) -> int:
    """Return how many results must be found so that the chances of the first k can be told."""
    return max(k, min(max(k + 1, DEPTH), index.most_results - left_out))


def chances_of(stored: StoredCalibration, found: Sequence[Sequence[Hit]], items: int) -> list[np.ndarray]:
    """Return the chance of each result of ranked lists, which go as deep as ``depth_of`` says."""
    if not any(found):
        return [np.empty(0) for _ in found]
    scores = np.full((len(found), max(map(len, found))), np.nan)
    for row, hits in enumerate(found):
        scores[row, : len(hits)] = [hit.score for hit in hits]
    told = stored.calibration.chances(scores, max(1, items), stored.per_class)
    return [row[: len(hits)] for row, hits in zip(told, found, strict=True)]


def with_chances(hits: Sequence[Hit], chances: dict[str, float]) -> list[Hit]:
    """Return results with their chances by id; one that was found farther away than these has the least of them."""
    least = min(chances.values(), default=0.0)
    return [replace(hit, chance=chances.get(hit.id, least)) for hit in hits]


def no_calibration(where: str = "INDEX") -> UsageError:
    """Return the error for an index that can't tell chances, with what to run."""
    return UsageError(
        "This index has no calibration, so it can't tell chances. Make one from labelled items that the model has not "
        f"learned: tophit calibrate {where} (or tophit calibrate {where} --data LABELLED)."
    )
