"""The kinds of approximate index, and how each is built over the vectors of a segment.

``ivf``: lists of 8-bit numbers. ``pq``: lists of 4-bit codes of pairs of numbers (FAISS's fast scan), a quarter of the
memory. ``hnsw``: a graph over 8-bit numbers. All name candidates; exact scores come from the float32 vectors.
"""

import math
from typing import Any

import faiss
import numpy as np

from tophit.cancelling import check_cancelled
from tophit.search.local.approximate import FAISS
from tophit.search.local.threads import one_thread

_CHUNK = 65_536
_LINKS = 16
_BREADTH = 100
_POINTS_PER_LIST = 40
_MANY_LISTS = 512
"""From here on, finding the nearest centres by comparing all would take as long as searching their lists."""
_SHARE_BY_CODES = 64
"""Up to this part of the lists is found through codes, which give four candidates for each: a sixteenth of all."""


def lists_for(count: int) -> int:
    """Return the number of lists: one has some 200 vectors of 100,000, some 1,000 of 10 million."""
    return max(1, min(2 ** round(math.log2(3 * math.sqrt(count))), count // 39))


def bytes_of(kind: str, count: int, dim: int) -> int:
    """Return what an index holds in memory, about; the float32 vectors stay on the disk, except for ``flat``."""
    each = {
        "flat": 4 * dim,
        "ivf": dim + 8,
        "pq": math.ceil(dim / (4 if dim % 2 == 0 else 2)) + 8,
        "hnsw": dim + 8 * _LINKS + 28,
    }[kind]
    lists = lists_for(count) * dim * 4 if kind in ("ivf", "pq") else 0
    return count * each + lists


class Lists:
    """The centres of the lists, which ivf and pq share, and the sample of vectors that they were found with."""

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors
        self.count = lists_for(len(vectors))
        self.sample = _sample(vectors, max(_POINTS_PER_LIST * self.count, 20_000))
        centres = FAISS.IndexFlatIP(vectors.shape[1])
        settings = FAISS.ClusteringParameters()
        settings.max_points_per_centroid, settings.min_points_per_centroid = _POINTS_PER_LIST, 1
        settings.spherical, settings.niter = True, 10
        FAISS.Clustering(vectors.shape[1], self.count, settings).train(self.sample, centres)
        self.centres = _found_fast(centres) if self.count >= _MANY_LISTS else centres

    def build(self, kind: str) -> faiss.Index:
        """Build an index of lists: ``ivf`` or ``pq``."""
        dim = self.vectors.shape[1]
        if kind == "ivf":
            how: tuple[Any, ...] = (FAISS.ScalarQuantizer.QT_8bit, FAISS.METRIC_INNER_PRODUCT, True)
            index = FAISS.IndexIVFScalarQuantizer(self.centres, dim, self.count, *how)
        else:
            how = (_codes(dim), 4, FAISS.METRIC_INNER_PRODUCT)
            index = FAISS.IndexIVFPQFastScan(self.centres, dim, self.count, *how)
            index.by_residual = True
        with one_thread():  # many small trainings: threads would wait for each other, on a busy machine for minutes
            index.train(self.sample)
        return _filled(index, self.vectors)


def build_graph(vectors: np.ndarray, rows: np.ndarray) -> faiss.Index:
    """Build an HNSW graph over 8-bit numbers of some rows; others can be added."""
    graph = FAISS.IndexHNSWSQ(vectors.shape[1], FAISS.ScalarQuantizer.QT_8bit, _LINKS, FAISS.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = _BREADTH
    graph.train(_sample(vectors, 100_000))
    index = FAISS.IndexIDMap(graph)
    add_rows(index, vectors, rows)
    return index


def add_rows(index: Any, vectors: np.ndarray, rows: np.ndarray) -> None:
    """Add rows to a graph, in any order."""
    for start in range(0, len(rows), _CHUNK):
        check_cancelled()
        some = rows[start : start + _CHUNK]
        index.add_with_ids(np.ascontiguousarray(vectors[some]), some)


def _codes(dim: int) -> int:
    """Return how many 4-bit codes a vector has: one for each pair of numbers."""
    return dim // 2 if dim % 2 == 0 else dim


def _found_fast(centres: Any) -> Any:
    """Return the same centres, found through 4-bit codes, four candidates compared exactly for each one wanted."""
    coded = FAISS.IndexPQFastScan(centres.d, _codes(centres.d), 4, FAISS.METRIC_INNER_PRODUCT)
    coded.pq.cp.min_points_per_centroid = 1
    values = centres.reconstruct_n(0, centres.ntotal)
    with one_thread():
        coded.train(values)
    coded.add(values)
    found = FAISS.IndexRefine(coded, centres)
    found.k_factor = 4
    return found


def suit_centres(index: Any, effort: int) -> None:
    """Let lists be found by comparing all centres if an effort takes so many that codes would only add to it."""
    found = FAISS.downcast_index(index.quantizer)
    if isinstance(found, faiss.IndexRefine) and effort > index.nlist // _SHARE_BY_CODES:
        index.quantizer = found.refine_index


def _sample(vectors: np.ndarray, count: int) -> np.ndarray:
    random = np.random.default_rng(0)
    chosen = np.sort(random.choice(len(vectors), min(len(vectors), count), replace=False))
    return np.ascontiguousarray(vectors[chosen])


def _filled(index: Any, vectors: np.ndarray) -> faiss.Index:
    for start in range(0, len(vectors), _CHUNK):
        check_cancelled()
        index.add(np.ascontiguousarray(vectors[start : start + _CHUNK]))
    return index
