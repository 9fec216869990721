"""k-means on unit vectors with FAISS, started from a grouping of nearest neighbours.

With thousands of small clusters the start decides the result, more than the number of iterations. Random starts put two
centres into one class and none into another, and Lloyd's iterations hardly mend that. So the start here groups each
vector with its nearest neighbours, the closest pairs first. It has no randomness.
"""

import faiss
import numpy as np
import torch

from tophit.evaluation.inputs import unit_rows

NEIGHBOURS = 10
ITERATIONS = 2  # after the grouping start; more change little
ITERATIONS_FROM_RANDOM = 20
_SPREAD_OF_SIZES = 2  # a group of the start has at most this many times the mean size


def cluster(vectors: torch.Tensor, clusters: int, seed: int = 0, restarts: int = 0) -> np.ndarray:
    """Return each vector's cluster (N,), an integer below ``clusters``, by k-means on the unit vectors (N, d).

    The first start is the grouping of nearest neighbours; ``restarts`` more are random vectors drawn by ``seed``. The
    result with the least inertia is kept.
    """
    rows = np.ascontiguousarray(unit_rows(vectors).float().numpy())
    if not 1 <= clusters <= len(rows):
        raise ValueError(f"{len(rows)} vectors can be put into 1 to {len(rows)} clusters, not {clusters}")
    if restarts < 0:
        raise ValueError(f"restarts is 0 or more, not {restarts}")
    best = _lloyd(rows, grouping_start(rows, clusters), ITERATIONS)
    for number in range(restarts):
        chosen = np.random.default_rng((seed, number)).choice(len(rows), clusters, replace=False)
        best = min(best, _lloyd(rows, rows[np.sort(chosen)], ITERATIONS_FROM_RANDOM), key=lambda a: inertia(rows, a))
    return best


def inertia(rows: np.ndarray, assigned: np.ndarray) -> float:
    """Return the sum of squared distances of rows (N, d) to the mean of their cluster."""
    sums, counts = _sums(rows, assigned)
    return float(np.square(rows, dtype=np.float64).sum() - (np.square(sums).sum(axis=1) / counts.clip(min=1)).sum())


def grouping_start(rows: np.ndarray, clusters: int) -> np.ndarray:
    """Return centres (clusters, d): the means of groups of nearest neighbours among unit rows (N, d).

    Pairs of a row and one of its NEIGHBOURS nearest are joined in order of similarity, unless the group would exceed
    twice the mean size, until as many groups as clusters are left. If the pairs run out before, the largest groups
    are taken.
    """
    groups = _join(*_neighbour_pairs(rows), count=len(rows), target=clusters)
    sums, counts = _sums(rows, groups)
    largest = np.argsort(-counts, kind="stable")[:clusters]
    return (sums[largest] / counts[largest, None]).astype(np.float32)


def _neighbour_pairs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (first, second) of near neighbours, the most similar first, ties by index."""
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)  # type: ignore[call-arg]
    similarity, neighbour = index.search(rows, min(NEIGHBOURS + 1, len(rows)))  # type: ignore[call-arg]
    first = np.repeat(np.arange(len(rows)), neighbour.shape[1])
    second, similarity = neighbour.ravel(), similarity.ravel()
    found = (second >= 0) & (first != second)
    low, high = np.minimum(first, second)[found], np.maximum(first, second)[found]
    order = np.lexsort((high, low, -similarity[found]))
    return low[order], high[order]


def _join(first: np.ndarray, second: np.ndarray, count: int, target: int) -> np.ndarray:
    """Join pairs in their order into groups of limited size until ``target`` are left; return the groups (N,)."""
    limit = max(2, -(-_SPREAD_OF_SIZES * count // target))
    parent, size, groups = list(range(count)), [1] * count, count

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for a, b in zip(first.tolist(), second.tolist(), strict=True):
        if groups == target:
            break
        a, b = root(a), root(b)
        if a != b and size[a] + size[b] <= limit:
            parent[b] = a
            size[a] += size[b]
            groups -= 1
    return np.unique([root(node) for node in range(count)], return_inverse=True)[1]


def _lloyd(rows: np.ndarray, centres: np.ndarray, iterations: int) -> np.ndarray:
    """Return the clusters (N,) after Lloyd's iterations from these centres."""
    settings = faiss.ClusteringParameters()
    settings.niter = iterations
    settings.min_points_per_centroid = 1  # else FAISS complains of small clusters on the terminal
    settings.max_points_per_centroid = len(rows)  # else it trains on a sample
    kmeans = faiss.Clustering(rows.shape[1], len(centres), settings)
    faiss.copy_array_to_vector(np.ascontiguousarray(centres).ravel(), kmeans.centroids)
    index = faiss.IndexFlatL2(rows.shape[1])
    kmeans.train(rows, index)  # type: ignore[call-arg]
    return index.search(rows, 1)[1].ravel()  # type: ignore[call-arg]


def _sums(rows: np.ndarray, assigned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum (clusters, d) and the number (clusters,) of the rows of each cluster."""
    sums = torch.zeros(int(assigned.max()) + 1, rows.shape[1], dtype=torch.float64)
    for start in range(0, len(rows), 4096):
        part = slice(start, start + 4096)
        sums.index_add_(0, torch.from_numpy(assigned[part]), torch.from_numpy(rows[part]).double())
    return sums.numpy(), np.bincount(assigned, minlength=len(sums))
