"""Ranks after query expansion or k-reciprocal re-ranking, to measure what they bring on labelled data."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from tophit.evaluation.inputs import MEMORY_BUDGET, unit_rows
from tophit.evaluation.nearest import first_items
from tophit.evaluation.ranks import relevant_ranks
from tophit.evaluation.relevant import RankedQueries
from tophit.evaluation.scores import SearchTask
from tophit.reranking import AlphaExpansion, KReciprocal, Reranking, expand_queries, k_reciprocal_distances

_BYTES_PER_PAIR = 40  # memory of k_reciprocal_distances for each pair of candidates
_STEP = 1024  # queries expanded at a time


def reranked_ranks(task: SearchTask, rerank: Reranking, memory_budget: int = MEMORY_BUDGET) -> Iterator[RankedQueries]:
    """Yield the ranks of all relevant items after re-ranking, in groups of consecutive queries."""
    if isinstance(rerank, AlphaExpansion):
        yield from relevant_ranks(expanded_task(task, rerank, memory_budget), memory_budget)
        return
    first, _ = first_items(task, rerank.candidates, memory_budget)
    for part in relevant_ranks(task, memory_budget):
        yield _reranked_part(task, rerank, part, first, memory_budget)


def expanded_task(task: SearchTask, rerank: AlphaExpansion, memory_budget: int = MEMORY_BUDGET) -> SearchTask:
    """Return the task with every query expanded by its nearest items, without its own."""
    first, _ = first_items(task, rerank.neighbours, memory_budget)
    parts: list[torch.Tensor] = []
    for start in range(0, len(first), _STEP):
        rows = slice(start, start + _STEP)
        nearest = _vectors(task, first[rows])
        queries = unit_rows(task.queries[rows]).numpy()
        parts.append(torch.from_numpy(expand_queries(queries, nearest, rerank.alpha)))
    return replace(task, queries=torch.cat(parts))


def _reranked_part(
    task: SearchTask, rerank: KReciprocal, part: RankedQueries, first: np.ndarray, memory_budget: int
) -> RankedQueries:
    """Replace the ranks among the candidates; items behind them keep their ranks."""
    queries = np.arange(part.first, part.first + len(part.counts))
    inside = _ranks_inside(task, rerank, queries, first[queries], memory_budget)
    owners = np.repeat(np.arange(len(part.counts)), part.counts)
    behind = part.ranks > first.shape[1]
    ranks = np.concatenate([inside[1], part.ranks[behind]])
    owners = np.concatenate([inside[0], owners[behind]])
    order = np.lexsort((ranks, owners))
    counts = np.bincount(owners, minlength=len(part.counts))
    grades = None if part.grades is None else np.concatenate([inside[2], part.grades[behind]])[order]
    return RankedQueries(part.first, counts, ranks[order], grades, part.right_from)


def _ranks_inside(
    task: SearchTask, rerank: KReciprocal, queries: np.ndarray, first: np.ndarray, memory_budget: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return owners (from 0), new ranks and grades of the relevant items among each query's candidates."""
    size = first.shape[1] + 1
    step = max(1, memory_budget // 4 // (size * (size * _BYTES_PER_PAIR + 16 * task.items.shape[1])))
    owners, ranks, grades = [], [], []
    for start in range(0, len(queries), step):
        found = first[start : start + step]
        chosen = queries[start : start + step]
        distances = k_reciprocal_distances(
            unit_rows(task.queries[torch.from_numpy(chosen)]).numpy(), _vectors(task, found), rerank
        )
        order = np.argsort(np.where(found < 0, np.inf, distances), axis=1, kind="stable")
        items = np.take_along_axis(found, order, axis=1)
        table = np.stack([_grades(task, query, found) for query, found in zip(chosen, items, strict=True)])
        row, place = np.nonzero(table)
        owners.append(row + start)
        ranks.append(place + 1)
        grades.append(table[row, place])
    return np.concatenate(owners), np.concatenate(ranks), np.concatenate(grades)


def _grades(task: SearchTask, query: int, items: np.ndarray) -> np.ndarray:
    """Return the grades (n,) of some items (n,) for a query; 0 for one that is not relevant or is -1."""
    if task.relevance is None:
        return np.where(items < 0, 0.0, task.item_classes[items] == task.query_classes[query])
    relevant, grades = task.relevance.of_query(query)
    if not len(relevant):
        return np.zeros(len(items))
    place = np.searchsorted(relevant, items).clip(max=len(relevant) - 1)
    return np.where(relevant[place] == items, grades[place], 0.0)


def _vectors(task: SearchTask, items: np.ndarray) -> np.ndarray:
    """Return the unit vectors (Q, n, d) of items (Q, n); zeros for -1."""
    rows = unit_rows(task.items[torch.from_numpy(items.ravel().clip(0))]).numpy()
    rows[items.ravel() < 0] = 0
    return rows.reshape(*items.shape, -1)
