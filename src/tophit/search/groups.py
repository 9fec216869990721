"""One result for each group of items, such as a product with several pictures: the best picture, then the others.

It works on the ranking that any backend and any re-ranking gives: look deeper until there are enough groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tophit.search.backend import Hit
from tophit.search.chances import Hits
from tophit.search.index import Index

Ranked = Callable[[Sequence[int], int], list[list[Hit]]]
"""Gives the results of some queries, by their numbers, to a depth; best first."""
_FIRST_DEPTH = 50
_DEEPER = 4


class GroupedHits(Hits):
    """The best item of each group; ``others`` of a hit are the rest of its group, best first.

    ``stopped_at`` is None, or how many results were looked at when the search stopped with fewer groups than wanted
    although there may be more.
    """

    stopped_at: int | None = None


def search_groups(ranked: Ranked, queries: int, k: int, column: str, deepest: int) -> list[GroupedHits]:
    """Return the best item of up to k groups for each query; items without a value in the column are on their own.

    Looks at more and more results until there are k groups, the index has no more items, or ``deepest`` is reached.
    """
    found = [GroupedHits() for _ in range(queries)]
    waiting, depth = list(range(queries)), min(deepest, max(_FIRST_DEPTH, 2 * k))
    while waiting:
        short: list[int] = []
        for number, hits in zip(waiting, ranked(waiting, depth), strict=True):
            best: dict[Any, Hit] = {}
            for hit in hits:
                best.setdefault(group_of(hit, column), hit)
            found[number] = GroupedHits(replace(hit, rank=rank) for rank, hit in enumerate(list(best.values())[:k], 1))
            if len(best) < k and len(hits) >= depth:
                short.append(number)
        if depth == deepest:
            for number in short:
                found[number].stopped_at = depth
            break
        waiting, depth = short, min(deepest, _DEEPER * depth)
    return found


def with_others(
    index: Index,
    query: np.ndarray,
    hits: GroupedHits,
    column: str,
    where: Mapping[str, Any] | None,
    without: set[str],
    deepest: int,
) -> GroupedHits:
    """Fill in the others of each hit: one search among the groups found, for at most ``deepest`` items in all.

    Their scores are cosines with the query (dim,). The groups meet the filter's condition on the column, if there is
    one, so the found values can stand in its place.
    """
    values = [hit.metadata[column] for hit in hits if _has_value(hit, column)]
    if not values:
        return hits
    best = {hit.id for hit in hits}
    others: dict[Any, list[Hit]] = {}
    for hit in index.search(query, deepest, {**(where or {}), column: values})[0]:
        if hit.id not in best and hit.id not in without:
            others.setdefault(group_of(hit, column), []).append(hit)
    filled = GroupedHits(replace(hit, others=tuple(others.get(group_of(hit, column), ()))) for hit in hits)
    filled.stopped_at = hits.stopped_at
    return filled


def group_of(hit: Hit, column: str) -> Any:
    """Return what tells a hit's group from others: the value and whether it is text or true/false, else the id."""
    if not _has_value(hit, column):
        return ("item", hit.id)
    value = hit.metadata[column]
    return ("text" if isinstance(value, str) else "truth" if isinstance(value, bool) else "number", value)


def _has_value(hit: Hit, column: str) -> bool:
    return isinstance(hit.metadata.get(column), str | bool | int | float)
