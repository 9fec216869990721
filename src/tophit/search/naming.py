"""Names by neighbours: what the nearest labelled items say a picture shows, and how likely that is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tophit.calibrating import StoredCalibration
from tophit.errors import UsageError
from tophit.evaluation.calibration import CUT_OFF
from tophit.evaluation.calibration_features import VOTERS
from tophit.search.backend import Hit
from tophit.search.chances import depth_of
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
            return f"{self.label}, chance {self.chance:.0%}"
        if self.guess is None:
            return "unknown: no labelled item is near"
        return f"unknown: the best guess, {self.guess}, has a chance of {self.chance:.0%}, less than {self.cut_off:.0%}"

    def plain(self) -> dict[str, Any]:
        """Return it without the evidence, as JSON holds it."""
        return {"label": self.label, "chance": round(self.chance, 6), "guess": self.guess, "cut_off": self.cut_off}


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
    """Name what each example shows, by the labels of its nearest items."""
    leave_out = [[] if each.id is None else [each.id] for each in examples]
    depth = depth_of(index, VOTERS, max(map(len, leave_out), default=0))
    found = search_vectors(index, np.stack([each.vector for each in examples]), depth, where, (), leave_out)
    items = index.count(where) if where else len(index)
    return [_name(hits, calibration, max(1, items), cut_off) for hits in found]


def _name(hits: list[Hit], stored: StoredCalibration, items: int, cut_off: float) -> Name:
    labels = [_label(hit) for hit in hits]
    names = list(dict.fromkeys(label for label in labels if label is not None))
    if not names:
        return Name(None, 0.0, None, cut_off, hits[:SHOWN])
    numbers = np.array([[-1 if label is None else names.index(label) for label in labels]])
    scores = np.array([[hit.score for hit in hits]])
    winner, chance = stored.calibration.names_of(scores, numbers, items, stored.per_class)
    if winner[0] < 0:  # the labelled ones are all far away
        return Name(None, 0.0, None, cut_off, hits[:SHOWN])
    guess = names[int(winner[0])]
    return Name(guess if chance[0] >= cut_off else None, float(chance[0]), guess, cut_off, hits[:SHOWN])


def _label(hit: Hit) -> str | None:
    label = hit.metadata.get("label")
    return None if label is None or label == "" else str(label)
