"""Chances beside scores, lists that are cut by them, and the answer that nothing is like a query."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tophit.calibrating import StoredCalibration
from tophit.data.item_rows import LABEL_KIND
from tophit.errors import UsageError
from tophit.evaluation.calibration_features import DEPTH
from tophit.search.backend import Hit
from tophit.search.index import Index

CHANCE_DIGITS = 4
"""Digits after the point of chances in answers."""
_DOUBT = 0.5  # a best result that is likelier right than wrong is like the query, only not as surely as was asked for


def percent(chance: float) -> str:
    """Write a chance for people, who take 0% for never and 100% for always.

    >>> percent(0.002), percent(0.64), percent(0.998)
    ('<1%', '64%', '>99%')
    """
    return "<1%" if chance < 0.01 else ">99%" if chance > 0.99 else f"{chance:.0%}"


def at_least(chances: float | NDArray[np.float64], least: float) -> np.ndarray:
    """Return which chances reach the least one, as they are told: one copied from an answer keeps its result."""
    return np.round(chances, CHANCE_DIGITS) >= round(least, CHANCE_DIGITS)


def less_than(chance: float, least: float) -> str:
    """Say that a chance is too low, with digits that tell it from the least one.

    >>> less_than(0.07, 0.5), less_than(0.496, 0.5), less_than(0.002, 0.5)
    ('7%, less than 50%', '49.6%, less than 50.0%', '<1%, less than 50%')
    """
    told = ((f"{chance:.{digits}%}", f"{least:.{digits}%}") for digits in range(16))
    few, many = next((pair for pair in told if pair[0] != pair[1]), (f"{chance:g}", f"{least:g}"))
    return f"{percent(chance) if chance < 0.01 <= least else few}, less than {many}"


@dataclass(frozen=True)
class Nothing:
    """Why no result is shown: the best one that there was is too unlikely to be right, or there was none."""

    reason: str
    score: float | None = None
    chance: float | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        score = None if self.score is None else round(self.score, 6)
        chance = None if self.chance is None else round(self.chance, CHANCE_DIGITS)
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

    def kept(self, chances: Sequence[float]) -> np.ndarray:
        """Return which of the results with these chances are shown (N,).

        The precision keeps as many of the most likely ones as have it on average: one more would bring the expected
        share of right results below it.
        """
        told = np.asarray(chances, float)
        order = np.argsort(-told, kind="stable")
        likely = np.ones(len(told), bool)
        if self.min_chance is not None:
            likely &= at_least(told[order], self.min_chance)
        if self.precision is not None:
            likely &= np.cumsum(told[order]) / np.arange(1, len(told) + 1) >= self.precision - 1e-12
        kept = np.zeros(len(told), bool)
        kept[order[np.logical_and.accumulate(likely)]] = True
        return kept

    def nothing(self, best: Hit | None) -> Nothing:
        """Say why nothing is shown."""
        if best is None or best.chance is None:
            return Nothing("There is nothing to find: no item meets the filter.")
        least = max(value for value in (self.min_chance, self.precision) if value is not None)
        what = "Nothing here is like this" if best.chance < _DOUBT else "Nothing here is likely enough"
        words = f"the likeliest result is right with a chance of {less_than(best.chance, least)}"
        return Nothing(f"{what}: {words}.", best.score, best.chance)


ANY_CHANCE = LeastChance()


def depth_of(index: Index, k: int, left_out: int) -> int:
    """Return how many results must be found so that the chances of the first k can be told."""
    return max(k, min(max(k + 1, DEPTH), index.most_results - left_out))


@dataclass(frozen=True)
class Likely:
    """What is told about one query: the chances of its nearest items by id, and of their labels."""

    by_id: dict[str, float]
    by_label: dict[str, float]

    def of(self, hit: Hit) -> float:
        """Return the chance of a result; of one farther away than the nearest items, that of its label or the least."""
        label = label_of(hit)
        known = self.by_label if label is not None else {}
        return self.by_id.get(hit.id, known.get(label or "", min(self.by_id.values(), default=0.0)))

    def told(self, hits: Sequence[Hit]) -> list[Hit]:
        """Return results with their chances."""
        return [replace(hit, chance=self.of(hit)) for hit in hits]


def likely_of(
    stored: StoredCalibration, found: Sequence[Sequence[Hit]], items: int, names: bool = False
) -> list[Likely]:
    """Return what is told about queries by their nearest items, which go as deep as ``depth_of`` says.

    With ``names``, the chances are those of labels, and items without one have none. Chances of all items are told,
    whatever filter a query has: leaving items out makes none of the others likelier.
    """
    if not any(found):
        return [Likely({}, {}) for _ in found]
    scores = np.full((len(found), max(map(len, found))), np.nan)
    labels, numbers = np.full(scores.shape, -1), dict[str, int]()
    for row, hits in enumerate(found):
        scores[row, : len(hits)] = [hit.score for hit in hits]
        for place, hit in enumerate(hits):
            if (label := label_of(hit)) is not None:
                labels[row, place] = numbers.setdefault(label, len(numbers))
    if names:
        told = stored.calibration.label_chances(scores, labels, max(1, items), stored.per_class)
    else:
        told = stored.calibration.chances(scores, max(1, items), stored.per_class, labels)
    return [_likely(hits, row[: len(hits)].tolist()) for row, hits in zip(told, found, strict=True)]


def _likely(hits: Sequence[Hit], chances: list[float]) -> Likely:
    by_label: dict[str, float] = {}
    for hit, chance in zip(hits, chances, strict=True):
        if (label := label_of(hit)) is not None:
            by_label.setdefault(label, chance)
    return Likely({hit.id: chance for hit, chance in zip(hits, chances, strict=True)}, by_label)


def label_of(hit: Hit) -> str | None:
    """Return the label of a result; None if it has none, or several."""
    label = hit.metadata.get("label")
    return None if label is None or label == "" or LABEL_KIND in hit.metadata else str(label)


def no_calibration(where: str = "INDEX") -> UsageError:
    """Return the error for an index that can't tell chances, with what to run."""
    return UsageError(
        "This index has no calibration, so it can't tell chances. Make one from labelled items that the model has not "
        f"learned: tophit calibrate {where} (or tophit calibrate {where} --data LABELLED)."
    )
