"""The queries that a report can open, as plain values: their lists, rank changes and misplaced sets."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.evaluation.similarity import SearchTask
from tophit.progress import View
from tophit.report.changes import rank_changes
from tophit.report.evaluated import Evaluated
from tophit.report.lists import FoundList, found_lists, misplaced_sets
from tophit.report.pictures import Pictures

RESULTS = 10
TopK = tuple[int, float]  # k and margin of the top-k precision loss


class QueryPages:
    """Queries chosen for a report. ``place`` says where a query stands among them; ``plain`` describes all."""

    def __init__(self, first: Evaluated, other: Evaluated | None, pictures: Pictures) -> None:
        self.first, self.other, self.pictures = first, other, pictures
        self.places: dict[int, int] = {}

    def place(self, queries: Iterable[int]) -> list[int]:
        """Choose queries and return where they stand among all that were chosen."""
        return [self.places.setdefault(int(query), len(self.places)) for query in queries]

    def plain(
        self,
        top_k: tuple[TopK | None, TopK | None] = (None, None),
        memory_budget: int = MEMORY_BUDGET,
        view: View | None = None,
    ) -> list[dict[str, Any]]:
        """Return the chosen queries: picture, average precision, and what each model found.

        ``top_k`` adds the misplaced sets of a model that was trained with the top-k precision loss.
        """
        view = view or View()
        sides = []
        for model, wanted, name in zip((self.first, self.other), top_k, ("Lists", "Lists of the other"), strict=True):
            if model is not None:
                sides.append(self._side(model, wanted, memory_budget, view, name))
        answer = []
        for query in self.places:
            row = int(self.first.query[query])
            found = {"picture": self.pictures.add(self.first.rows[row]), "sides": [side[query] for side in sides]}
            if len(sides) == 2:
                mine, theirs = (side["items"] for side in found["sides"])
                found["moved"], lost = rank_changes(theirs, mine)
                found["lost"] = [theirs.index(item) for item in lost]
            answer.append(found)
        return answer

    def _side(
        self, model: Evaluated, top_k: TopK | None, memory_budget: int, view: View, name: str
    ) -> dict[int, dict[str, Any]]:
        task, chosen = model.task(), list(self.places)
        lists = found_lists(task, chosen, RESULTS, memory_budget, view.track(name))
        moved = {} if top_k is None else misplaced_sets(task, chosen, *top_k, memory_budget=memory_budget)
        answer = {}
        for query, found in lists.items():
            answer[query] = self._list(model, task, query, found)
            if top_k is not None:
                answer[query]["belong"] = self._pictures(model, moved[query].belong)
                answer[query]["intrude"] = self._pictures(model, moved[query].intrude)
        return answer

    def _list(self, model: Evaluated, task: SearchTask, query: int, found: FoundList) -> dict[str, Any]:
        precision = float(model.metrics.per_query["mAP"][query])
        wrong = next((item for item, right in zip(found.items, found.right, strict=True) if not right), None)
        return {
            "precision": None if np.isnan(precision) else round(precision, 5),
            "relevant": int(np.count_nonzero(task.item_classes == task.query_classes[query]))
            - int(task.own_items[query] >= 0),
            "first": found.first_right,
            "first_picture": self._pictures(model, [found.first_right_item])[0]
            if found.first_right_item is not None
            else None,
            "items": self._pictures(model, found.items),
            "scores": [round(score, 4) for score in found.scores],
            "right": [int(right) for right in found.right],
            "wrong": None if wrong is None else model.labels[int(model.gallery[wrong])],
        }

    def _pictures(self, model: Evaluated, items: Iterable[int]) -> list[int]:
        return [self.pictures.add(model.rows[int(model.gallery[item])]) for item in items]
