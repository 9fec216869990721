"""The queries that a report shows, as plain values: their results, rank changes and misplaced sets."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tophit.evaluation import rank_changes
from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.evaluation.nearest import FoundList, found_lists
from tophit.evaluation.relevance import Mark
from tophit.evaluation.scores import SearchTask
from tophit.figures.galleries import Shown
from tophit.progress import View
from tophit.reporting.measured import Measured
from tophit.reporting.pictures import Pictures
from tophit.reporting.queries import misplaced_sets

RESULTS = 10
TopK = tuple[int, float]  # k and margin of the top-k precision loss


class QueryPages:
    """The queries chosen for a report. ``place`` chooses some and numbers them; ``plain`` describes all."""

    def __init__(self, first: Measured, other: Measured | None, pictures: Pictures) -> None:
        self.first, self.other, self.pictures = first, other, pictures
        self.places: dict[int, int] = {}

    def place(self, queries: Iterable[int]) -> list[int]:
        """Choose queries and return their numbers among all that were chosen."""
        return [self.places.setdefault(int(query), len(self.places)) for query in queries]

    def plain(
        self,
        top_k: tuple[TopK | None, TopK | None] = (None, None),
        memory_budget: int = MEMORY_BUDGET,
        view: View | None = None,
    ) -> list[dict[str, Any]]:
        """Return the chosen queries: picture, average precision, and the results of each model.

        ``top_k`` adds the misplaced sets of a model that was trained with the top-k precision loss.
        """
        view = view or View()
        sides = []
        for model, wanted in zip((self.first, self.other), top_k, strict=True):
            if model is not None:
                view.note(f"Listing the results of {len(self.places):,} queries by {model.name} ...")
                sides.append(self._side(model, wanted, memory_budget))
        answer = []
        for query in self.places:
            row = int(self.first.search.query[query])
            found = {"picture": self.pictures.add(self.first.rows[row]), "sides": [side[query] for side in sides]}
            if len(sides) == 2:
                mine, theirs = (side["items"] for side in found["sides"])
                found["moved"], lost = rank_changes(theirs, mine)
                found["lost"] = [theirs.index(item) for item in lost]
            answer.append(found)
        return answer

    def _side(self, model: Measured, top_k: TopK | None, memory_budget: int) -> dict[int, dict[str, Any]]:
        task, chosen = model.task(), list(self.places)
        lists = found_lists(task, chosen, RESULTS, memory_budget)
        moved = {} if top_k is None else misplaced_sets(task, chosen, *top_k, memory_budget=memory_budget)
        answer = {}
        for query, found in lists.items():
            answer[query] = self._list(model, task, query, found)
            if top_k is not None:
                answer[query]["belong"] = self._pictures(model, moved[query].belong)
                answer[query]["intrude"] = self._pictures(model, moved[query].intrude)
        return answer

    def _list(self, model: Measured, task: SearchTask, query: int, found: FoundList) -> dict[str, Any]:
        precision = float(model.metrics.per_query["mAP"][query])
        wrong = next((item for item, mark in zip(found.items, found.marks, strict=True) if mark != "right"), None)
        relevant = int(np.count_nonzero(task.is_right(query))) - int(task.own_items[query] >= 0)
        return {
            "precision": None if np.isnan(precision) else round(precision, 5),
            "relevant": relevant,
            "first": found.first_right,
            "first_picture": self._pictures(model, [found.first_right_item])[0]
            if found.first_right_item is not None
            else None,
            "items": self._pictures(model, found.items),
            "scores": [round(score, 4) for score in found.scores],
            "marks": _until_all_found(found.marks, relevant),
            "wrong": None if wrong is None else model.labels[int(model.search.gallery[wrong])],
        }

    def _pictures(self, model: Measured, items: Iterable[int]) -> list[int]:
        return [self.pictures.add(model.rows[int(model.search.gallery[item])]) for item in items]


def _until_all_found(marks: Sequence[Mark], relevant: int) -> list[Shown]:
    """Return marks in which nothing after the last of all right results is called wrong.

    >>> _until_all_found(["right", "wrong", "right", "wrong"], relevant=2)
    ['right', 'wrong', 'right', 'after']
    """
    found = np.cumsum([mark == "right" for mark in marks])
    return [
        mark if mark != "wrong" or so_far < relevant else "after" for mark, so_far in zip(marks, found, strict=True)
    ]
