"""How well classes stay together: k-means clusters against classes (NMI, F1), distances inside and between classes."""

import numpy as np
import torch

from tophit.evaluation.inputs import Array, encode_labels, labelled_vectors, unit_rows
from tophit.evaluation.kmeans import cluster

_ROWS = 4096


def clustering_metrics(
    embeddings: Array, labels: Array, seed: int = 0, *, super_classes: Array | None = None, restarts: int = 0
) -> dict[str, float]:
    """Cluster unit vectors (N, d) by k-means into as many clusters as classes and return ``NMI`` and ``F1``.

    The start is a grouping of nearest neighbours; ``restarts`` adds random starts by ``seed`` (``kmeans.cluster``).
    ``super_classes`` (N,), coarser labels, add ``super-NMI`` and ``super-F1`` with one cluster per super-class, as the
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

    It is 1 if both partitions have only one part.

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
    """Return 2 tp / (2 tp + fp + fn) over all pairs of samples (N,); tp have the same cluster and the same class.

    It is 0 if there is no such pair.

    >>> pairwise_f1([0, 0, 1, 1], [0, 0, 0, 1])
    0.4
    """
    together, first, second = _contingency(clusters, classes)
    both, in_clusters, in_classes = (int((n * (n - 1) // 2).sum()) for n in (together, first, second))
    return 2 * both / (in_clusters + in_classes) if both else 0.0


def class_spread(embeddings: Array, labels: Array) -> dict[str, float]:
    """Return the mean cosine distance inside classes (``intra``) and between class means (``inter``).

    intra = mean_c mean_{i != j in c} (1 - cos(x_i, x_j)) without classes of one image;
    inter = mean_{c != c'} (1 - cos(mu_c, mu_c')), where mu_c is the mean of the class's unit vectors. NaN if there is
    no such pair. Both are computed from sums, in O(N d): sum_{i != j} x_i . x_j = |sum_i x_i|^2 - sum_i |x_i|^2.

    >>> class_spread([[1, 0], [0, 1], [-1, 0], [0, -1]], [0, 0, 1, 1])["intra"]
    1.0
    """
    vectors, classes = labelled_vectors(embeddings, labels)
    codes = torch.from_numpy(classes)
    sums = torch.zeros(int(classes.max()) + 1, vectors.shape[1], dtype=torch.float64)
    squares = torch.zeros(len(sums), dtype=torch.float64)
    for start in range(0, len(vectors), _ROWS):
        part = slice(start, start + _ROWS)
        rows = unit_rows(vectors[part].double())
        sums.index_add_(0, codes[part], rows)
        squares.index_add_(0, codes[part], rows.square().sum(dim=1))
    sizes = np.bincount(classes)
    several = sizes > 1
    within = _mean_of_pairs(sums.square().sum(dim=1).numpy(), squares.numpy(), sizes)[several]
    means = unit_rows(sums)
    between = _mean_of_pairs(
        np.asarray([float(means.sum(dim=0).square().sum())]),
        np.asarray([float(means.square().sum())]),
        np.asarray([len(means)]),
    )
    return {"intra": float(1 - within.mean()) if several.any() else float("nan"), "inter": float(1 - between[0])}


def _contingency(clusters: Array, classes: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sizes of the non-empty intersections, of the clusters and of the classes."""
    (a,), (b,) = encode_labels(clusters), encode_labels(classes)
    if len(a) != len(b) or not len(a):
        raise ValueError(f"expected two partitions of the same samples, got {len(a)} and {len(b)} labels")
    together = np.unique(a * (b.max() + 1) + b, return_counts=True)[1]
    return together, np.bincount(a), np.bincount(b)


def _entropy(shares: np.ndarray) -> float:
    return float(-(shares * np.log(shares)).sum())


def _mean_of_pairs(square_of_sum: np.ndarray, sum_of_squares: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return the mean of x_i . x_j over the ordered pairs i != j of ``count`` vectors; NaN for fewer than two."""
    pairs = np.where(count > 1, count * (count - 1.0), np.nan)
    return (square_of_sum - sum_of_squares) / pairs
