"""Spread: how tight the classes are and how far apart, in cosine distance."""

import numpy as np
import torch

from tophit.evaluation.inputs import Array, labelled_vectors, unit_rows

_ROWS = 4096


def class_spread(embeddings: Array, labels: Array) -> dict[str, float]:
    """Return the mean cosine distance inside classes (``intra``) and between class means (``inter``).

    intra = mean_c mean_{i != j in c} (1 - cos(x_i, x_j)), classes of one image left out;
    inter = mean_{c != c'} (1 - cos(mu_c, mu_c')), mu_c the mean of the class's unit vectors. NaN where there is no
    such pair. Both come from sums, in O(N d): sum_{i != j} x_i . x_j = |sum_i x_i|^2 - sum_i |x_i|^2.

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


def _mean_of_pairs(square_of_sum: np.ndarray, sum_of_squares: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Return the mean of x_i . x_j over the ordered pairs i != j of ``count`` vectors; NaN for fewer than two."""
    pairs = np.where(count > 1, count * (count - 1.0), np.nan)
    return (square_of_sum - sum_of_squares) / pairs
