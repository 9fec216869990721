"""Queries on any index: by vectors, by items, by examples for and against, with expansion and re-ranking."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tophit.errors import TophitError, UsageError
from tophit.reranking import AlphaExpansion, KReciprocal, Reranking, expand_queries, k_reciprocal_distances
from tophit.search.engine import Hit
from tophit.search.index import Index

AGAINST = 0.5  # how much the examples against weigh


def search_vectors(
    index: Index,
    queries: np.ndarray,
    k: int = 10,
    where: Mapping[str, Any] | None = None,
    rerank: Sequence[Reranking] = (),
    leave_out: Sequence[Sequence[str]] | None = None,
) -> list[list[Hit]]:
    """Return up to k items for each query vector (Q, dim), best first, after the steps of re-ranking in their order.

    ``leave_out`` names items that a query must not find, such as itself. A score is the cosine with the query, or with
    the expanded query; after k-reciprocal re-ranking it is 1 minus that distance.
    """
    queries = np.atleast_2d(np.asarray(queries, np.float32))
    without = [set(each) for each in leave_out] if leave_out is not None else [set() for _ in queries]
    for step in rerank:
        if isinstance(step, AlphaExpansion):
            queries = _expanded(index, queries, step, where, without)
    reordering = [step for step in rerank if isinstance(step, KReciprocal)]
    if not reordering:
        return _search(index, queries, k, where, without)
    step = reordering[-1]
    candidates = _search(index, queries, max(k, step.candidates), where, without)
    return [_reordered(index, query, hits, step)[:k] for query, hits in zip(queries, candidates, strict=True)]


def search_by_id(
    index: Index,
    ids: Sequence[str],
    k: int = 10,
    where: Mapping[str, Any] | None = None,
    rerank: Sequence[Reranking] = (),
) -> list[list[Hit]]:
    """Return the items nearest to each of some items, which do not find themselves."""
    return search_vectors(index, vectors_of_items(index, ids), k, where, rerank, [[each] for each in ids])


def combined_query(wanted: np.ndarray, unwanted: np.ndarray | None = None, against: float = AGAINST) -> np.ndarray:
    """Return one unit query (dim,) from vectors of examples: more like these (P, dim), less like those (N, dim).

    Rocchio's formula over unit vectors: mean(wanted) - against * mean(unwanted), scaled to unit length.
    """
    if not len(wanted):
        raise UsageError("A search by examples needs at least one that is wanted.")
    query = _unit(wanted).mean(axis=0)
    if unwanted is not None and len(unwanted):
        query = query - against * _unit(unwanted).mean(axis=0)
    length = np.linalg.norm(query)
    if length < 1e-6:
        raise UsageError("The examples cancel each other out: those wanted and those not are the same.")
    return (query / length).astype(np.float32)


def vectors_of_items(index: Index, ids: Sequence[str]) -> np.ndarray:
    """Return the vectors (n, dim) of items; an id that is not there is an error."""
    found = index.get(list(ids))
    missing = [name for name, item in zip(ids, found, strict=True) if item is None]
    if missing:
        raise TophitError(f"The index has no item '{missing[0]}'.")
    return np.stack([item.vector for item in found if item is not None])


def _search(
    index: Index, queries: np.ndarray, k: int, where: Mapping[str, Any] | None, without: Sequence[set[str]]
) -> list[list[Hit]]:
    """Search for a few more where some are left out, and number the rest anew."""
    more = max(map(len, without), default=0)
    answers: list[list[Hit]] = []
    for hits, names in zip(index.search(queries, k + more, where), without, strict=True):
        kept = [hit for hit in hits if hit.id not in names][:k]
        answers.append([replace(hit, rank=rank) for rank, hit in enumerate(kept, 1)])
    return answers


def _expanded(
    index: Index,
    queries: np.ndarray,
    step: AlphaExpansion,
    where: Mapping[str, Any] | None,
    without: Sequence[set[str]],
) -> np.ndarray:
    nearest = np.zeros((len(queries), step.neighbours, index.dim), np.float32)
    for row, hits in enumerate(_search(index, queries, step.neighbours, where, without)):
        if hits:
            nearest[row, : len(hits)] = vectors_of_items(index, [hit.id for hit in hits])
    return expand_queries(_unit(queries), nearest, step.alpha)


def _reordered(index: Index, query: np.ndarray, hits: list[Hit], step: KReciprocal) -> list[Hit]:
    if not hits:
        return []
    vectors = vectors_of_items(index, [hit.id for hit in hits])
    distances = k_reciprocal_distances(_unit(query[None]), vectors[None], step)[0]
    order = np.argsort(distances, kind="stable")
    return [replace(hits[i], rank=rank, score=float(1 - distances[i])) for rank, i in enumerate(order, 1)]


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
