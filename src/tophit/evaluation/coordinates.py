"""A place on a map for every vector: near ones near each other."""

from typing import Any

import numpy as np


def coordinates(vectors: np.ndarray) -> tuple[np.ndarray, str]:
    """Return points (n, 2) of unit vectors (n, d): t-SNE where openTSNE is installed, else principal components."""
    count = len(vectors)
    centred = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centred.T @ centred if count > centred.shape[1] else centred, full_matrices=False)
    start = centred @ axes[:2].T if len(axes) > 1 else np.zeros((count, 2))
    try:
        from openTSNE import TSNE
    except ImportError:
        return _scaled(start), "PCA"
    if count < 20 or start.shape[1] < 2:
        return _scaled(start), "PCA"
    spread = start / max(float(start[:, 0].std()), 1e-12) * 1e-4
    model: Any = TSNE(perplexity=min(30, (count - 1) // 3), metric="cosine", random_state=0, n_jobs=1)
    model.initialization = spread  # declared as a name only
    return _scaled(np.asarray(model.fit(vectors))), "t-SNE"


def _scaled(points: np.ndarray) -> np.ndarray:
    """Move points into the square -1..1, with the same scale on both axes."""
    points = points - (points.max(axis=0) + points.min(axis=0)) / 2
    return (points / max(float(np.abs(points).max()), 1e-12)).astype(np.float32)
