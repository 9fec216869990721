"""Which classes are confused: at every level of a hierarchy, and label by label where images have several."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tophit.data.label_kinds import label_text
from tophit.data.manifest import ImageRow
from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.evaluation.nearest import first_items
from tophit.reporting.measured import Measured
from tophit.reporting.pictures import Pictures

_PAIRS = 12
_EXAMPLES = 6  # images of a confused class
Names = Sequence[tuple[str, ...]]
"""What each image is called at a level: one name, or several where it has several labels."""


@dataclass(frozen=True)
class Level:
    """A way to name images: by class, by label, or by the first levels of a path. ``names`` has those of every row."""

    title: str
    names: Names


def levels_of_rows(rows: Sequence[ImageRow], titles: Sequence[str] = ()) -> list[Level]:
    """Return the ways to name images, the finest first; ``titles`` are those of a hierarchy's levels above the class.

    >>> from pathlib import Path
    >>> [level.title for level in levels_of_rows([ImageRow(Path("a"), "x/y/z", kind="path", names=("x", "y", "z"))])]
    ['class', 'level 2', 'level 1']
    """
    if not rows or rows[0].kind != "path":
        several = bool(rows) and rows[0].kind == "several"
        return [Level("label" if several else "class", [row.classes for row in rows])]
    depth = len(rows[0].names)
    found = [Level("class", [row.classes for row in rows])]
    for level in range(depth - 1, 0, -1):
        title = titles[level - 1] if len(titles) == depth - 1 else f"level {level}"
        found.append(Level(title, [(label_text(row.names[:level], "path"),) for row in rows]))
    return found


@dataclass
class ConfusedPair:
    """Two classes that are confused, the one more often mistaken first; ``examples`` are (query, nearest item)."""

    first: str
    second: str
    first_for_second: int
    second_for_first: int
    examples: list[tuple[int, int]] = field(default_factory=list)

    @property
    def queries(self) -> int:
        """How many queries of either class have an item of the other as their nearest."""
        return self.first_for_second + self.second_for_first


def confused_pairs(asked: Names, found: Names, nearest: np.ndarray, most: int) -> list[ConfusedPair]:
    """Return the pairs of names confused by most queries; ``nearest`` (Q,) is each query's nearest item or -1.

    ``asked`` (Q) and ``found`` (M) are the names of queries and items. A query confuses all of its names with all of
    the item's names if they have none in common.
    """
    mistakes = [
        (query, item, one, other)
        for query, item in enumerate(nearest.tolist())
        if item >= 0 and not set(asked[query]) & set(found[item])
        for one in asked[query]
        for other in found[item]
    ]
    directed = Counter((one, other) for _, _, one, other in mistakes)
    pairs: dict[tuple[str, str], ConfusedPair] = {}
    for one, other in directed:
        low, high = min(one, other), max(one, other)
        if (low, high) not in pairs:
            first, second = (low, high) if directed[low, high] >= directed[high, low] else (high, low)
            pairs[low, high] = ConfusedPair(first, second, directed[first, second], directed[second, first])
    ranked = sorted(pairs.values(), key=lambda pair: (-pair.queries, pair.first, pair.second))[:most]
    wanted = {tuple(sorted((pair.first, pair.second))): pair for pair in ranked}
    for query, item, one, other in mistakes:
        if pair := wanted.get((min(one, other), max(one, other))):
            pair.examples.append((query, item))
    return ranked


@dataclass(frozen=True)
class Confusions:
    """Each query's nearest item (Q,), -1 without a right answer, and how many of these items are right, near, wrong."""

    nearest: np.ndarray
    marks: Counter[str]


def find_confusions(model: Measured, memory_budget: int = MEMORY_BUDGET) -> Confusions:
    """Find the first result of every query that has a right answer."""
    task = model.task()
    nearest = first_items(task, 1, memory_budget)[0][:, 0]
    nearest = np.where(np.isnan(model.metrics.per_query["mAP"]), -1, nearest)
    asked = np.flatnonzero(nearest >= 0)
    return Confusions(nearest, Counter(task.marks(query, nearest[query : query + 1])[0] for query in asked.tolist()))


def confused_part(
    model: Measured, confusions: Confusions, levels: Sequence[Level], pictures: Pictures
) -> list[dict[str, Any]]:
    """Return for every level the most confused pairs with images of both, confused images first."""
    return [
        {"title": level.title, "pairs": _pairs_at(level.names, model, confusions.nearest, pictures)} for level in levels
    ]


def _pairs_at(names: Names, model: Measured, nearest: np.ndarray, pictures: Pictures) -> list[dict[str, Any]]:
    query, gallery = model.search.query.tolist(), model.search.gallery.tolist()
    found = confused_pairs([names[row] for row in query], [names[row] for row in gallery], nearest, _PAIRS)
    wanted = {name for pair in found for name in (pair.first, pair.second)}
    members: dict[str, list[int]] = {name: [] for name in wanted}
    for row, own in enumerate(names):
        for name in wanted.intersection(own):
            if len(members[name]) < 4 * _EXAMPLES:
                members[name].append(row)
    answer = []
    for pair in found:
        confused = {pair.first: list[int](), pair.second: list[int]()}
        for number, item in pair.examples:
            for row in (query[number], gallery[item]):
                confused[pair.first if pair.first in names[row] else pair.second].append(row)
        classes = []
        for name, rows in confused.items():
            shown = list(dict.fromkeys([*rows, *members[name]]))[:_EXAMPLES]
            classes.append({"label": name, "items": [pictures.add(model.rows[row]) for row in shown]})
        answer.append({"counts": [pair.first_for_second, pair.second_for_first], "classes": classes})
    return answer
