"""Improve the first results: alpha query expansion and k-reciprocal re-ranking, on plain arrays.

Both use only the first candidates of a query, so their cost does not grow with the collection.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from tophit.errors import UsageError


@dataclass(frozen=True)
class AlphaExpansion:
    """Alpha query expansion: search again with the query moved towards its nearest items.

    q' = q + sum over the first ``neighbours`` items x_i of max(0, q.x_i)^alpha x_i, scaled to unit length
    (Radenovic, Tolias and Chum, Fine-tuning CNN image retrieval with no human annotation, 2018).
    """

    neighbours: int = 5
    alpha: float = 3.0

    def __post_init__(self) -> None:
        if self.neighbours < 1 or self.alpha < 0:
            raise UsageError(f"alpha-qe needs neighbours >= 1 and alpha >= 0, not {self.neighbours} and {self.alpha}.")


@dataclass(frozen=True)
class KReciprocal:
    """Re-ranking of the first ``candidates`` by k-reciprocal neighbours.

    Zhong, Zheng, Cao and Li, Re-ranking person re-identification with k-reciprocal encoding, 2017, with the
    neighbourhoods taken among the query and its candidates. ``k1``, ``k2`` and ``share`` (lambda, the weight of
    the original distance) are the paper's.
    """

    candidates: int = 100
    k1: int = 20
    k2: int = 6
    share: float = 0.3

    def __post_init__(self) -> None:
        if self.candidates < 1 or self.k1 < 1 or self.k2 < 1 or not 0 <= self.share <= 1:
            raise UsageError("k-reciprocal needs candidates, k1 and k2 of at least 1 and a share from 0 to 1.")


Reranking = AlphaExpansion | KReciprocal
_KINDS: dict[str, type[Any]] = {"alpha-qe": AlphaExpansion, "k-reciprocal": KReciprocal}


def parse_reranking(text: str) -> Reranking:
    """Parse a re-ranking: its name, and after a colon the settings that differ from the defaults.

    >>> parse_reranking("alpha-qe:alpha=2,neighbours=10")
    AlphaExpansion(neighbours=10, alpha=2.0)
    """
    name, _, rest = text.partition(":")
    if name not in _KINDS:
        raise UsageError(f"There is no re-ranking '{name}'; choices: {', '.join(_KINDS)}.")
    kinds = {field.name: int if field.type is int else float for field in fields(_KINDS[name])}
    settings: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in kinds:
            raise UsageError(f"{name} has no setting '{key}'; choices: {', '.join(kinds)}.")
        try:
            settings[key] = kinds[key](value)
        except ValueError:
            raise UsageError(f"{name}: {key} must be a number, not '{value}'.") from None
    return _KINDS[name](**settings)


def expand_queries(queries: np.ndarray, nearest: np.ndarray, alpha: float) -> np.ndarray:
    """Return alpha-expanded unit queries (Q, d) from unit queries (Q, d) and their nearest items (Q, n, d).

    A missing neighbour is a row of zeros.
    """
    similarity = np.clip(np.einsum("qd,qnd->qn", queries, nearest), 0, None)
    weights = np.where(similarity > 0, similarity**alpha, 0)
    expanded = queries + np.einsum("qn,qnd->qd", weights, nearest)
    return (expanded / np.linalg.norm(expanded, axis=1, keepdims=True)).astype(queries.dtype)


def k_reciprocal_distances(queries: np.ndarray, candidates: np.ndarray, settings: KReciprocal) -> np.ndarray:
    """Return the re-ranked distances (Q, C) of unit queries (Q, d) to their candidates (Q, C, d), nearest first.

    With R(i, k) the items j such that each of i and j is among the other's k nearest, R*(i) is R(i, k1) joined with
    R(j, k1/2) for every member j for which at least two thirds of R(j, k1/2) are in R(i, k1). V_i holds exp(-d(i, j))
    for j in R*(i), scaled to sum 1, then averaged over the k2 nearest of i. The distance is
    (1 - share) (1 - sum_j min(V_q, V_i) / sum_j max(V_q, V_i)) + share d(q, i), with d = 1 - cosine.
    Memory is about 40 Q (C + 1)^2 bytes: split many queries into parts.
    """
    everyone = np.concatenate([queries[:, None], candidates], axis=1)  # the query is number 0
    distance = 1 - np.matmul(everyone, everyone.transpose(0, 2, 1))
    n = distance.shape[1]
    distance[:, np.arange(n), np.arange(n)] = -1  # each is its own nearest, despite rounding and duplicates
    order = np.argsort(distance, axis=2, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(n), order.shape), axis=2)
    distance = np.maximum(distance, 0)
    far = _reciprocal(place, settings.k1)
    near = _reciprocal(place, int(np.around(settings.k1 / 2)))
    shared = np.matmul(far, near.transpose(0, 2, 1))  # of R(i, k1) and R(j, k1/2)
    joined = far * (shared >= 2 / 3 * near.sum(axis=2)[:, None, :] - 1e-4)
    members = (far > 0) | (np.matmul(joined, near) > 0)
    weights = np.where(members, np.exp(-distance), 0)
    weights /= weights.sum(axis=2, keepdims=True)
    nearest = (place < settings.k2).astype(weights.dtype)
    weights = np.matmul(nearest, weights) / nearest.sum(axis=2, keepdims=True)
    smaller = np.minimum(weights[:, :1], weights[:, 1:]).sum(axis=2)
    larger = np.maximum(weights[:, :1], weights[:, 1:]).sum(axis=2)
    return (1 - settings.share) * (1 - smaller / larger) + settings.share * distance[:, 0, 1:]


def _reciprocal(place: np.ndarray, k: int) -> np.ndarray:
    """Return 1 where i and j are among each other's k nearest, or i = j, as floats (Q, n, n)."""
    among = place <= k  # place 0 is the item itself
    return (among & among.transpose(0, 2, 1)).astype(np.float32)
