"""What the page shows by its own means, as figures for a paper: galleries, the map, the local centres."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tophit.report.drawing import Drawing
from tophit.report.figures import centres_drawing, gallery_drawing, map_drawing
from tophit.report.pictures import Pictures

if TYPE_CHECKING:
    from tophit.report.proxies import LocalCentre

_TITLES = {"best": "Best queries", "worst": "Worst queries", "random": "Random queries"}
_RESULTS = 8


@dataclass(frozen=True)
class _Ranked:
    query: int
    results: Sequence[int]
    scores: Sequence[float]


def page_figures(
    content: Mapping[str, Any], pictures: Pictures, centres: Sequence["LocalCentre"] | None
) -> list[Drawing]:
    """Return the figures of a page's content, whose images are numbers of ``pictures``."""
    figures = []
    for name, title in _TITLES.items():
        queries = [content["queries"][place] for place in content["galleries"][name]]
        ranked = [_Ranked(one["picture"], one["sides"][0]["items"], one["sides"][0]["scores"]) for one in queries]
        figures.append(gallery_drawing(pictures.rows, ranked, _RESULTS, f"gallery_{name}", title))
    drawn = content["map"]
    points = np.frombuffer(base64.b64decode(drawn["points"]), "<f4").reshape(-1, 2)
    shown = np.frombuffer(base64.b64decode(drawn["pictures"]), "<u4")
    rows = [pictures.rows[number] for number in shown]
    paths = [str(row.path) for row in rows]
    figures.append(map_drawing(points, [row.label for row in rows], drawn["method"], images=paths))
    return figures if centres is None else [*figures, centres_drawing(centres)]
