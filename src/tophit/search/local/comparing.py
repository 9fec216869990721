"""Comparing all rows of a part, or the allowed ones, with queries: exact, and fast enough for few rows."""

import numpy as np

from tophit.search.exact import exact_scores, scan
from tophit.search.local.approximate import Candidates

_FEW_QUERIES = 4
"""Up to so many queries, reading some rows where they are is faster than gathering them for a matrix product."""


def compared(queries: np.ndarray, vectors: np.ndarray, k: int, rows: np.ndarray | None = None) -> Candidates:
    """Return the up to k nearest of some rows, ascending, or of all, best first."""
    if rows is not None and len(queries) <= _FEW_QUERIES:
        return _in_place(queries, vectors, k, rows)
    found = scan(queries, vectors, k, rows)
    return _sorted(Candidates(exact_scores(queries, vectors, found), found))


def _in_place(queries: np.ndarray, vectors: np.ndarray, k: int, rows: np.ndarray) -> Candidates:
    places = np.broadcast_to(rows, (len(queries), len(rows)))
    scores = exact_scores(queries, vectors, places)
    if len(rows) > k:
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        scores, places = np.take_along_axis(scores, best, axis=1), rows[best]
    return _sorted(Candidates(scores, places))


def _sorted(found: Candidates) -> Candidates:
    order = np.argsort(-found.scores, axis=1)
    return Candidates(np.take_along_axis(found.scores, order, axis=1), np.take_along_axis(found.rows, order, axis=1))
