"""Clustering metrics: k-means on unit vectors against the classes, as NMI and pairwise F1."""

import numpy as np

from tophit.evaluation.inputs import Array, encode_labels, labelled_vectors
from tophit.evaluation.kmeans import cluster


def clustering_metrics(
    embeddings: Array, labels: Array, seed: int = 0, *, super_classes: Array | None = None, restarts: int = 0
) -> dict[str, float]:
    """Cluster unit vectors (N, d) by k-means into as many clusters as classes and return ``NMI`` and ``F1``.

    The start is a grouping of nearest neighbours, ``seed`` and ``restarts`` add random ones (``kmeans.cluster``).
    ``super_classes`` (N,), coarser labels, add ``super-NMI`` and ``super-F1`` with one cluster a super-class, as the
    top-k precision paper reports for Stanford Online Products (12 super-classes).
    """
    vectors, classes = labelled_vectors(embeddings, labels)
    assigned = cluster(vectors, int(classes.max()) + 1, seed, restarts)
    metrics = {"NMI": nmi(assigned, classes), "F1": pairwise_f1(assigned, classes)}
    if super_classes is not None:
        (coarse,) = encode_labels(super_classes)
        if len(coarse) != len(classes):
            raise ValueError(f"{len(classes)} embeddings but {len(coarse)} super-classes; every row needs one")
        assigned = cluster(vectors, int(coarse.max()) + 1, seed, restarts)
        metrics |= {"super-NMI": nmi(assigned, coarse), "super-F1": pairwise_f1(assigned, coarse)}
    return metrics


def nmi(clusters: Array, classes: Array) -> float:
    """Return the normalised mutual information 2 I(Omega; C) / (H(Omega) + H(C)) of two partitions (N,).

    Two partitions of one part each agree fully: 1.

    >>> nmi([0, 0, 1, 1], ["b", "b", "a", "a"])
    1.0
    """
    together, first, second = _contingency(clusters, classes)
    total = together.sum()
    entropies = _entropy(first / total) + _entropy(second / total)
    if entropies == 0:
        return 1.0
    information = entropies - _entropy(together / total)
    return float(min(1.0, max(0.0, 2 * information / entropies)))


def pairwise_f1(clusters: Array, classes: Array) -> float:
    """Return 2 tp / (2 tp + fp + fn) over all pairs of samples (N,): tp are in one cluster and of one class.

    0 where no pair is in one cluster and of one class.

    >>> pairwise_f1([0, 0, 1, 1], [0, 0, 0, 1])
    0.4
    """
    together, first, second = _contingency(clusters, classes)
    both, in_clusters, in_classes = (int((n * (n - 1) // 2).sum()) for n in (together, first, second))
    return 2 * both / (in_clusters + in_classes) if both else 0.0


def _contingency(clusters: Array, classes: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sizes of the non-empty intersections, of the clusters and of the classes."""
    (a,), (b,) = encode_labels(clusters), encode_labels(classes)
    if len(a) != len(b) or not len(a):
        raise ValueError(f"two partitions of the same samples are needed, got {len(a)} and {len(b)} labels")
    together = np.unique(a * (b.max() + 1) + b, return_counts=True)[1]
    return together, np.bincount(a), np.bincount(b)


def _entropy(shares: np.ndarray) -> float:
    return float(-(shares * np.log(shares)).sum())
