"""Exact search: every allowed vector is compared with every query."""

import faiss
import numpy as np

from tophit.cancelling import check_cancelled

_BLOCK = 65_536
"""Vectors gathered at a time: 32 MB at 128 numbers a vector."""
_WORTH_THREADS = 4096
"""Fewer scores are made by one thread: starting others costs more, much more on a busy machine."""


def scan(queries: np.ndarray, vectors: np.ndarray, k: int, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the rows of the up to k vectors (N, d) nearest to each query (Q, d), (Q, k) with -1 for none.

    ``rows`` are those to look at, ascending; all, without.
    """
    if rows is None:
        if not len(vectors):
            return np.full((len(queries), 0), -1, np.int64)
        return faiss.knn(queries, vectors, min(k, len(vectors)), metric=faiss.METRIC_INNER_PRODUCT)[1]
    heap = faiss.ResultHeap(len(queries), min(k, max(len(rows), 1)), keep_max=True)
    for start in range(0, len(rows), _BLOCK):
        check_cancelled()
        chosen = rows[start : start + _BLOCK]
        scores, places = faiss.knn(queries, vectors[chosen], min(k, len(chosen)), metric=faiss.METRIC_INNER_PRODUCT)
        heap.add_result(scores, chosen[places])
    heap.finalize()
    return heap.I


def exact_scores(queries: np.ndarray, vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the inner products of each query (Q, d) with its own rows (Q, k); minus infinity where a row is -1.

    Each pair is summed in the same order, so equal vectors have equal scores.
    """
    scores = np.empty(rows.shape, np.float32)
    if rows.size:
        threads = faiss.omp_get_max_threads()
        if rows.size < _WORTH_THREADS or len(rows) == 1:  # each thread takes whole queries
            faiss.omp_set_num_threads(1)
        rows = np.ascontiguousarray(rows, np.int64)
        faiss.fvec_inner_products_by_idx(  # type: ignore[attr-defined]
            faiss.swig_ptr(scores),
            faiss.swig_ptr(queries),
            faiss.swig_ptr(vectors),
            faiss.swig_ptr(rows),
            *(vectors.shape[1], *rows.shape),
        )
        faiss.omp_set_num_threads(threads)
    return scores
