"""k-means on unit vectors, started from a grouping of nearest neighbours.

With thousands of small clusters the start matters more than the number of iterations. Random starts put two centres
into one class and none into another, and Lloyd's iterations hardly correct that. So the start here joins near
neighbours into groups by Ward's criterion, the inertia that k-means minimises. It has no randomness. The iterations
that follow compare a vector only with the centres of its neighbours' groups, if clusters are small.
``python -m benchmarks.evaluation clustering`` compares it with the starts of scikit-learn.
"""

from dataclasses import dataclass

import faiss
import numpy as np
import torch

from tophit.evaluation.inputs import unit_rows
from tophit.evaluation.near_items import near_items
from tophit.evaluation.ward import ward_groups

NEIGHBOURS = 10
_ITERATIONS = 20
_LARGE = 40  # vectors per cluster; with larger clusters there are few, and comparing with all centres is cheap
_ROWS = 4096


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
    best = _from_grouping(rows, clusters)
    for number in range(restarts):
        chosen = np.random.default_rng((seed, number)).choice(len(rows), clusters, replace=False)
        best = min(best, _lloyd(rows, rows[np.sort(chosen)]), key=lambda a: inertia(rows, a))
    return best


def inertia(rows: np.ndarray, assigned: np.ndarray) -> float:
    """Return the sum of squared distances of rows (N, d) to the mean of their cluster."""
    sums, counts = _sums(rows, assigned), np.bincount(assigned)
    return float(np.square(rows, dtype=np.float64).sum() - (np.square(sums).sum(axis=1) / counts.clip(min=1)).sum())


def _from_grouping(rows: np.ndarray, clusters: int) -> np.ndarray:
    """Return the clusters (N,) of unit rows (N, d) by iterations that start from groups of near neighbours.

    If neighbours leave more groups than clusters, the largest groups are the start.
    """
    distinct = _distinct(rows)
    near = near_items(distinct.rows, NEIGHBOURS)
    first = np.repeat(np.arange(len(near)), near.shape[1])
    groups = ward_groups(distinct.rows, distinct.times, first, near.ravel(), clusters)
    if groups.max() < clusters and len(rows) < _LARGE * clusters:
        return _local_lloyd(distinct, groups, near)[distinct.numbers]
    largest = np.argsort(-np.bincount(groups, distinct.times), kind="stable")[:clusters]
    return _lloyd(rows, _means(distinct, groups)[largest])


@dataclass(frozen=True)
class _Distinct:
    """The distinct ``rows`` (n, d), how often each occurs (``times``, n), and which of them each row is (N,)."""

    rows: np.ndarray
    times: np.ndarray
    numbers: np.ndarray


def _distinct(rows: np.ndarray) -> _Distinct:
    """Return the distinct rows in their order: equal rows are only each other's neighbours."""
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, places, numbers, times = np.unique(whole, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(places)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return _Distinct(rows[places[order]], times[order].astype(np.float32), rank[numbers])


def _local_lloyd(distinct: _Distinct, groups: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Return the clusters (n,) after iterations that compare a row with the centres of its neighbours' clusters.

    ``near`` (n, neighbours) are the neighbours. A cluster that loses all its rows stays empty.
    """
    for _ in range(_ITERATIONS):
        centres = torch.from_numpy(_means(distinct, groups))
        halves = centres.square().sum(dim=1) / 2
        after = np.empty_like(groups)
        for start in range(0, len(groups), _ROWS):
            part = slice(start, start + _ROWS)
            choices = torch.from_numpy(np.concatenate([groups[part, None], groups[near[part]]], axis=1))
            vectors = torch.from_numpy(distinct.rows[part])
            products = torch.bmm(centres[choices.flatten()].view(*choices.shape, -1), vectors[:, :, None])[:, :, 0]
            best = (products - halves[choices]).argmax(dim=1, keepdim=True)
            after[part] = choices.gather(1, best)[:, 0].numpy()
        if np.array_equal(after, groups):
            break
        groups = after
    return groups


def _means(distinct: _Distinct, groups: np.ndarray) -> np.ndarray:
    """Return the mean (groups, d) of each group's rows, weighed by how often they occur."""
    counts = np.bincount(groups, distinct.times).clip(min=1)
    return (_sums(distinct.rows * distinct.times[:, None], groups) / counts[:, None]).astype(np.float32)


def _lloyd(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Return the clusters (N,) after Lloyd's iterations from these centres."""
    settings = faiss.ClusteringParameters()
    settings.niter = _ITERATIONS
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
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        sums.index_add_(0, torch.from_numpy(assigned[part]), torch.from_numpy(rows[part]).double())
    return sums.numpy()
