"""Names by neighbours: what the nearest labelled items say a picture shows, and how likely that is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tophit.calibrating import StoredCalibration
from tophit.errors import UsageError
from tophit.evaluation.calibration import CUT_OFF
from tophit.evaluation.calibration_features import VOTERS
from tophit.search.backend import Hit
from tophit.search.chances import CHANCE_DIGITS, at_least, depth_of, label_of, less_than, likely_of, percent
from tophit.search.index import Index
from tophit.search.query import Resolved, Where, search_vectors

SHOWN = 5
"""Neighbours that are shown as evidence."""


@dataclass(frozen=True)
class Name:
    """What a picture shows: ``label`` and its ``chance``, or None, unknown, if that is below ``cut_off``.

    ``guess`` is the label that the neighbours vote for in any case, None if none has a label. ``evidence`` are the
    nearest items.
    """

    label: str | None
    chance: float
    guess: str | None
    cut_off: float
    evidence: list[Hit]

    @property
    def is_known(self) -> bool:
        """Whether it has a name."""
        return self.label is not None

    def sentence(self) -> str:
        """Say it in one line."""
        if self.label is not None:
            return f"{self.label}, chance {percent(self.chance)}"
        if self.guess is None:
            return "unknown: no labelled item is near"
        return f"unknown: the best guess, {self.guess}, has a chance of {less_than(self.chance, self.cut_off)}"

    def plain(self) -> dict[str, Any]:
        """Return it without the evidence, as JSON holds it."""
        return {
            "label": self.label,
            "chance": round(self.chance, CHANCE_DIGITS),
            "guess": self.guess,
            "cut_off": self.cut_off,
        }


def check_cut_off(cut_off: float, said: str = "cut_off") -> None:
    """Refuse a cut-off that is no chance."""
    if not 0 <= cut_off <= 1:
        raise UsageError(f"{said} is a chance, from 0 to 1, not {cut_off:g}.")


def name_vectors(
    index: Index,
    examples: Sequence[Resolved],
    calibration: StoredCalibration,
    where: Where = None,
    cut_off: float = CUT_OFF,
) -> list[Name]:
    """Name what each example shows: the likeliest label of its nearest items, of those that meet the filter."""
    vectors = np.stack([each.vector for each in examples])
    leave_out = [[] if each.id is None else [each.id] for each in examples]
    depth = depth_of(index, VOTERS, max(map(len, leave_out), default=0))
    deep = search_vectors(index, vectors, depth, None, (), leave_out)
    found = search_vectors(index, vectors, depth, where, (), leave_out) if where else deep
    told = likely_of(calibration, deep, len(index), names=True)
    return [_name(likely.told(hits), cut_off) for hits, likely in zip(found, told, strict=True)]


def _name(hits: list[Hit], cut_off: float) -> Name:
    evidence = [hit if label_of(hit) is not None else replace(hit, chance=None) for hit in hits[:SHOWN]]
    labelled = [hit for hit in hits if label_of(hit) is not None]
    if not labelled:
        return Name(None, 0.0, None, cut_off, evidence)
    best = max(labelled, key=lambda hit: hit.chance or 0.0)  # of equal ones the nearest
    guess, chance = label_of(best), best.chance or 0.0
    return Name(guess if at_least(chance, cut_off) else None, chance, guess, cut_off, evidence)
