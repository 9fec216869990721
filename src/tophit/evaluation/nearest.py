"""What queries find: their first items, and the rank of the first right one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tophit.evaluation.inputs import MEMORY_BUDGET
from tophit.evaluation.ranks import relevant_ranks
from tophit.evaluation.relevance import Mark
from tophit.evaluation.scores import ScoreStrips, SearchTask


@dataclass(frozen=True)
class FoundList:
    """The first results of one query: gallery indices, nearest first, their similarities, and what each is to it.

    ``first_right`` is the rank from 1 of the first right result and ``first_right_item`` that result,
    which may be further down than the results in the list; None if the gallery has none.
    """

    query: int
    items: list[int]
    scores: list[float]
    marks: list[Mark]
    first_right: int | None
    first_right_item: int | None

    @property
    def right(self) -> list[bool]:
        """Whether each result is right."""
        return [mark == "right" for mark in self.marks]


def found_lists(
    task: SearchTask, queries: Sequence[int] | np.ndarray, most: int, memory_budget: int = MEMORY_BUDGET
) -> dict[int, FoundList]:
    """Return the first ``most`` results of each chosen query; equal scores are ordered by gallery index."""
    if not len(queries):
        return {}
    chosen = np.asarray(queries)
    part = task.of_queries(chosen)
    items, scores = first_items(part, most, memory_budget)
    nearest_right = first_items(part, 1, memory_budget, only_right=True)[0][:, 0]
    first_right = np.concatenate([found.right.first_ranks for found in relevant_ranks(part, memory_budget)])
    lists = {}
    for row, query in enumerate(chosen.tolist()):
        held = items[row][items[row] >= 0]
        lists[query] = FoundList(
            query=query,
            items=held.tolist(),
            scores=scores[row, : len(held)].tolist(),
            marks=part.marks(row, held),
            first_right=int(first_right[row]) if nearest_right[row] >= 0 else None,
            first_right_item=int(nearest_right[row]) if nearest_right[row] >= 0 else None,
        )
    return lists


def first_items(
    task: SearchTask, count: int, memory_budget: int = MEMORY_BUDGET, only_right: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return gallery indices (Q, count) and scores (Q, count) of each query's first items, best first.

    Equal scores are ordered by gallery index. Where there are no more items, the index is -1 and the score -inf.
    ``only_right`` looks only at right items: those of the query's class, or as the task's relevance says.
    """
    strips = ScoreStrips(task, memory_budget)
    count = min(count, len(task.items))
    items = np.full((len(task.queries), count), -1)
    best = np.full(items.shape, -np.inf, np.float64 if task.score_type == torch.float64 else np.float32)
    for strip in strips.strips:
        rows = slice(*strip)
        for span in strips.spans:
            scores = strips.scores(strip, span)
            if only_right:
                for row, query in enumerate(range(*strip)):
                    scores[row, ~task.is_right(query)[slice(*span)]] = -np.inf
            places, values = _first_of_rows(scores, count)
            places = np.concatenate([items[rows], places + span[0]], axis=1)
            values = np.concatenate([best[rows], values], axis=1)
            order = np.argsort(-values, axis=1, kind="stable")[:, :count]
            items[rows] = np.take_along_axis(places, order, axis=1)
            best[rows] = np.take_along_axis(values, order, axis=1)
    items[best == -np.inf] = -1
    return items, best


def _first_of_rows(scores: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return places and values of the largest ``count`` scores of each row (n, m), equal ones by place."""
    count = min(count, scores.shape[1])
    values, places = (found.numpy() for found in torch.from_numpy(scores).topk(count, dim=1))
    least = values.min(axis=1, keepdims=True)
    ties = np.flatnonzero(np.count_nonzero(scores >= least, axis=1) > count)  # topk keeps any of the equal ones
    for row in ties[least[ties, 0] > -np.inf]:
        near = np.flatnonzero(scores[row] >= least[row])
        places[row] = near[np.argsort(-scores[row, near], kind="stable")][:count]
    places = np.sort(places, axis=1)
    values = np.take_along_axis(scores, places, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(places, order, axis=1), np.take_along_axis(values, order, axis=1)
