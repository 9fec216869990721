"""The map: a point for every vector, similar ones close together, and its figure coloured by class."""

import colorsys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tophit.figures.drawing import Drawing
from tophit.figures.style import COLUMN, MARKERS, SERIES, house_style, new_axes

_MOST_VECTOR_POINTS = 3000  # with more, the points become one bitmap inside the PDF and SVG
# openTSNE's own settings (250 and 500 rounds, a finer tree, from 10,000 points on a grid) take several times as long
# and keep as many neighbours together: python -m benchmarks.map
_ROUNDS: dict[str, Any] = {
    "early_exaggeration_iter": 125,
    "n_iter": 250,
    "negative_gradient_method": "bh",
    "theta": 0.8,
}
_BLOCK = 2**22  # similarities computed at a time
_GOLDEN = 0.618034  # this step around the colour wheel gives neighbouring numbers different colours


def coordinates(vectors: np.ndarray) -> tuple[np.ndarray, str]:
    """Return points (n, 2) of unit vectors (n, d): t-SNE where openTSNE is installed, else principal components."""
    count = len(vectors)
    centred = vectors - vectors.mean(axis=0)
    _, _, axes = np.linalg.svd(centred.T @ centred if count > centred.shape[1] else centred, full_matrices=False)
    start = centred @ axes[:2].T if len(axes) > 1 else np.zeros((count, 2))
    try:
        from openTSNE import TSNE
        from openTSNE.affinity import PerplexityBasedNN
        from openTSNE.nearest_neighbors import PrecomputedNeighbors
    except ImportError:
        return _scaled(start), "PCA"
    if count < 20 or start.shape[1] < 2:
        return _scaled(start), "PCA"
    spread = start / max(float(start[:, 0].std()), 1e-12) * 1e-4
    perplexity = min(30, (count - 1) // 3)
    neighbours = PrecomputedNeighbors(*_neighbours(vectors, 3 * perplexity))
    affinities = PerplexityBasedNN(knn_index=neighbours, perplexity=perplexity, n_jobs=1)
    model = TSNE(random_state=0, n_jobs=1, **_ROUNDS)
    return _scaled(np.asarray(model.fit(affinities=affinities, initialization=spread))), "t-SNE"


def _neighbours(vectors: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and the distances (n, count) of the nearest others of unit vectors (n, d), nearest first."""
    rows = np.empty((len(vectors), count), np.int64)
    distances = np.empty(rows.shape)
    step = max(1, _BLOCK // len(vectors))
    for start in range(0, len(vectors), step):
        part = slice(start, start + step)
        squares = 2 - 2 * (vectors[part] @ vectors.T)
        own = np.arange(len(squares))
        squares[own, start + own] = np.inf
        near = np.argpartition(squares, count - 1, axis=1)[:, :count]
        found = np.take_along_axis(squares, near, axis=1)
        order = np.argsort(found, axis=1, kind="stable")
        rows[part] = np.take_along_axis(near, order, axis=1)
        distances[part] = np.sqrt(np.maximum(np.take_along_axis(found, order, axis=1), 0))
    return rows, distances


def _scaled(points: np.ndarray) -> np.ndarray:
    """Move points into the square -1..1, with the same scale on both axes."""
    points = points - (points.max(axis=0) + points.min(axis=0)) / 2
    return (points / max(float(np.abs(points).max()), 1e-12)).astype(np.float32)


def map_drawing(
    points: np.ndarray,
    labels: Sequence[str],
    method: str = "t-SNE",
    title: str = "Map",
    images: Sequence[str] | None = None,
) -> Drawing:
    """Return the map of points (n, 2) with labels (n,). Up to seven classes get a legend, more get only colours.

    ``images`` are the paths of the images (n,) for the CSV file.
    """
    points = np.asarray(points, np.float64)
    names = [name for name, _ in Counter(labels).most_common()]
    few = len(names) <= len(SERIES)
    size = 7.0 if len(points) <= 2000 else 3.0 if len(points) <= 4000 else 1.2
    each = np.asarray(labels)
    with house_style():
        figure, axes = new_axes(COLUMN, 3.3)
        rasterized = len(points) > _MOST_VECTOR_POINTS
        if few:
            for number, name in enumerate(names):
                there = points[each == name]
                mark = {"marker": MARKERS[number], "color": SERIES[number], "label": name}
                axes.scatter(*there.T, s=size, linewidths=0, rasterized=rasterized, **mark)
            figure.legend(loc="outside upper left", ncols=min(3, len(names)), markerscale=2)
        else:
            number_of = {name: number for number, name in enumerate(sorted(names))}
            colours = np.asarray([_colour(number) for number in range(len(names))])
            chosen = colours[[number_of[label] for label in labels]]
            axes.scatter(*points.T, s=size, c=chosen, linewidths=0, alpha=0.85, rasterized=rasterized)
        axes.set_aspect("equal", adjustable="datalim")
        axes.axis("off")
    caption = (
        f"{len(points):,} images of {len(names):,} classes by {method}, each in the colour of its class. Points that "
        "are close are similar images; distances between distant points mean little."
    )
    numbers = {"x": points[:, 0], "y": points[:, 1], "label": list(labels)}
    return Drawing("map", title, caption, numbers if images is None else {**numbers, "image": list(images)}, figure)


def _colour(number: int) -> tuple[float, float, float]:
    """Return a colour unlike those of the preceding numbers: the hue steps on, the lightness alternates."""
    return colorsys.hls_to_rgb(number * _GOLDEN % 1, (0.42, 0.55, 0.66)[number % 3], 0.65)
