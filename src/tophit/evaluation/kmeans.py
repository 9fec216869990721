"""k-means on unit vectors with FAISS, started from a grouping of nearest neighbours.

With thousands of small clusters the start matters more than the number of iterations. Random starts put two centres
into one class and none into another, and Lloyd's iterations hardly correct that. So the start here joins near
neighbours into groups by Ward's criterion, the inertia that k-means minimises. It has no randomness.
``python -m benchmarks.evaluation clustering`` compares it with the starts of scikit-learn.
"""

import faiss
import numpy as np
import torch

from tophit.evaluation.inputs import unit_rows
from tophit.evaluation.ward import ward_groups

NEIGHBOURS = 10
FEWEST_ITERATIONS, MOST_ITERATIONS = 2, 20


def cluster(vectors: torch.Tensor, clusters: int, seed: int = 0, restarts: int = 0) -> np.ndarray:
    """Return each vector's cluster (N,), an integer below ``clusters``, by k-means on the unit vectors (N, d).

    The first start is Ward's grouping of near neighbours; each of ``restarts`` more is a random choice of vectors by
    ``seed``. The result with the lowest inertia is kept.
    """
    rows = np.ascontiguousarray(unit_rows(vectors).float().numpy())
    if not 1 <= clusters <= len(rows):
        raise ValueError(f"{len(rows)} vectors can be put into 1 to {len(rows)} clusters, not {clusters}")
    if restarts < 0:
        raise ValueError(f"restarts must be 0 or more, not {restarts}")
    best = _lloyd(rows, grouping_start(rows, clusters), iterations_after_grouping(len(rows), clusters))
    for number in range(restarts):
        chosen = np.random.default_rng((seed, number)).choice(len(rows), clusters, replace=False)
        best = min(best, _lloyd(rows, rows[np.sort(chosen)], MOST_ITERATIONS), key=lambda a: inertia(rows, a))
    return best


def inertia(rows: np.ndarray, assigned: np.ndarray) -> float:
    """Return the sum of squared distances of rows (N, d) to the mean of their cluster."""
    sums, counts = _sums(rows, assigned), np.bincount(assigned)
    return float(np.square(rows, dtype=np.float64).sum() - (np.square(sums).sum(axis=1) / counts.clip(min=1)).sum())


def iterations_after_grouping(count: int, clusters: int) -> int:
    """Return the iterations that take half the time of the neighbour search, 2 to 20: 2 for many small clusters."""
    return min(MOST_ITERATIONS, max(FEWEST_ITERATIONS, count // (2 * clusters)))


def grouping_start(rows: np.ndarray, clusters: int) -> np.ndarray:
    """Return centres (clusters, d): the means of groups of near neighbours among unit rows (N, d).

    The pairs are each row and its NEIGHBOURS nearest. If they leave more groups than clusters, the largest groups are
    used.
    """
    different, times = _distinct(rows)
    groups = ward_groups(different, times, *_neighbour_pairs(different), clusters)
    sums, counts = _sums(different * times[:, None], groups), np.bincount(groups, times)
    largest = np.argsort(-counts, kind="stable")[:clusters]
    return (sums[largest] / counts[largest, None]).astype(np.float32)


def _distinct(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows (n, d) and how often each occurs (n,): equal rows are only each other's neighbours."""
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    places, times = np.unique(whole, return_index=True, return_counts=True)[1:]
    order = np.argsort(places)
    return rows[places[order]], times[order].astype(np.float32)


def _neighbour_pairs(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs (first, second) of each row and its near neighbours."""
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)  # type: ignore[call-arg]
    neighbour = index.search(rows, min(NEIGHBOURS + 1, len(rows)))[1].ravel()  # type: ignore[call-arg]
    first = np.repeat(np.arange(len(rows)), len(neighbour) // len(rows))
    found = (neighbour >= 0) & (first != neighbour)
    return first[found], neighbour[found]


def _lloyd(rows: np.ndarray, centres: np.ndarray, iterations: int) -> np.ndarray:
    """Return the clusters (N,) after Lloyd's iterations from these centres."""
    settings = faiss.ClusteringParameters()
    settings.niter = iterations
    settings.min_points_per_centroid = 1  # else FAISS prints warnings about small clusters
    settings.max_points_per_centroid = len(rows)  # else FAISS trains on a sample
    kmeans = faiss.Clustering(rows.shape[1], len(centres), settings)
    faiss.copy_array_to_vector(np.ascontiguousarray(centres).ravel(), kmeans.centroids)
    index = faiss.IndexFlatL2(rows.shape[1])
    kmeans.train(rows, index)  # type: ignore[call-arg]
    return index.search(rows, 1)[1].ravel()  # type: ignore[call-arg]


def _sums(rows: np.ndarray, assigned: np.ndarray) -> np.ndarray:
    """Return the sum of the rows (N, d) of each cluster (clusters, d)."""
    sums = torch.zeros(int(assigned.max()) + 1, rows.shape[1], dtype=torch.float64)
    for start in range(0, len(rows), 4096):
        part = slice(start, start + 4096)
        sums.index_add_(0, torch.from_numpy(assigned[part]), torch.from_numpy(rows[part]).double())
    return sums.numpy()
