"""The map figure: every image a point, coloured by its class."""

import colorsys
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tophit.report.drawing import Drawing
from tophit.report.style import COLUMN, MARKERS, SERIES, house_style, new_axes

_MOST_VECTOR_POINTS = 3000  # above it the points are one picture inside the PDF and SVG
_GOLDEN = 0.618034  # steps round the circle of hues by which near numbers get far colours


def map_drawing(
    points: np.ndarray,
    labels: Sequence[str],
    method: str = "t-SNE",
    title: str = "Map",
    images: Sequence[str] | None = None,
) -> Drawing:
    """Return the map of points (n, 2) with labels (n,): up to seven classes get a legend, more only their colours.

    ``images`` are the images' paths (n,), for the numbers.
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
        f"{len(points):,} images of {len(names):,} classes by {method}, each in the colour of its class. Near points "
        "are similar images; distances between far ones mean little."
    )
    numbers = {"x": points[:, 0], "y": points[:, 1], "label": list(labels)}
    return Drawing("map", title, caption, numbers if images is None else {**numbers, "image": list(images)}, figure)


def _colour(number: int) -> tuple[float, float, float]:
    """Return a colour far from those of the numbers before it: hue round the circle, lightness in three steps."""
    return colorsys.hls_to_rgb(number * _GOLDEN % 1, (0.42, 0.55, 0.66)[number % 3], 0.65)
