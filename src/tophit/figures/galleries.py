"""Figures made of pictures: queries with their first results, and grids of pictures in general."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageOps

from tophit.data.manifest import ImageRow
from tophit.evaluation.relevance import Mark
from tophit.figures.drawing import Drawing
from tophit.figures.style import COLUMN, INK, PAGE, house_style, new_figure
from tophit.images.decode import BadImage, read_image

Shown = Mark | Literal["after"]
"""A mark, or that all right ones were found before: such a result is no mistake."""
COLOURS: dict[Shown, str] = {"right": "#168f3e", "near": "#b7791f", "wrong": "#cc2929", "after": "#9aa3ad"}
_LINES = {"right": "-", "near": (0, (4, 1.2)), "wrong": (0, (2.2, 1.2)), "after": "-"}
_SIDE = 128  # pixels of a picture
_TEXT = 0.17  # inches below a picture for one line of text
_LINE = 0.12  # for each further line
_GAP = 0.05
_HEAD_GAP = 0.12  # between a query and its results


@dataclass(frozen=True)
class Ranked:
    """A query and its first results, best first, as row numbers, with their cosine similarities and marks."""

    query: int
    results: Sequence[int]
    scores: Sequence[float]
    marks: Sequence[Shown]


@dataclass(frozen=True)
class Cell:
    """A picture with one or more lines of text below it.

    ``mark`` draws a frame: solid green if right, amber if near, dashed red if wrong; None draws none.
    """

    row: ImageRow
    text: str
    mark: Shown | None = None


def gallery_drawing(
    rows: Sequence[ImageRow],
    ranked: Sequence[Ranked],
    k: int = 5,
    name: str = "gallery",
    title: str = "Queries and their first results",
) -> Drawing:
    """Return queries with their k first results: right ones have a green frame, wrong ones a red one."""
    numbers: dict[str, list[Any]] = {
        column: [] for column in ("query", "query label", "rank", "image", "label", "similarity", "right", "mark")
    }
    lines: list[list[Cell]] = []
    for one in ranked:
        query = rows[one.query]
        cells = [Cell(query, query.label)]
        shown = zip(one.results[:k], one.scores[:k], one.marks[:k], strict=True)
        for rank, (place, score, mark) in enumerate(shown, 1):
            found = rows[place]
            cells.append(Cell(found, f"{rounded(score)}\n{found.label}", mark))
            right = int(mark == "right")
            values = (str(query.path), query.label, rank, str(found.path), found.label, float(score), right, mark)
            for column, value in zip(numbers.values(), values, strict=True):
                column.append(value)
        lines.append(cells)
    more = " Amber frame: near, of the same parent." if "near" in numbers["mark"] else ""
    more += " Grey frame: after all right ones." if "after" in numbers["mark"] else ""
    caption = (
        "A query (left) and its first results, nearest first, with their cosine similarity and class. Solid "
        f"green frame: right; dashed red frame: wrong.{more}"
    )
    return Drawing(name, title, caption, numbers, picture_grid(lines, k + 1, ["query", "nearest images"]))


def picture_grid(lines: Sequence[Sequence[Cell]], columns: int, heads: Sequence[str], left: Sequence[str] = ()) -> Any:
    """Draw rows of pictures; ``heads`` are titles of the first two columns, ``left`` is the text before each row."""
    width = COLUMN if columns <= 6 else PAGE
    before = 0.85 if left else 0.0
    apart = _HEAD_GAP if heads else 0.0
    side = (width - before - apart - _GAP * (columns + 1)) / columns
    most = max((cell.text.count("\n") for cells in lines for cell in cells), default=0)
    step = side + _TEXT + _LINE * most + _GAP
    top = 0.2 if heads else 0.04
    height = top + step * max(1, len(lines))
    with house_style():
        figure = new_figure(width, height)
        figure.set_layout_engine("none")
        for number, cells in enumerate(lines):
            y = height - top - number * step - side
            if left:
                figure.text(_GAP / width, (y + side / 2) / height, _fitting(left[number], 15), va="center", fontsize=7)
            for column, cell in enumerate(cells):
                x = before + _GAP + column * (side + _GAP) + (apart if column else 0.0)
                _draw_cell(figure, cell, (x / width, y / height, side / width, side / height), _letters(side))
        for column, text in enumerate(heads[:2]):
            x = _GAP + column * (side + _GAP + apart)
            figure.text(x / width, (height - 0.05) / height, text, va="top", fontsize=7)
    return figure


def _draw_cell(figure: Any, cell: Cell, place: tuple[float, float, float, float], letters: int) -> None:
    axes = figure.add_axes(place)
    axes.set_xticks([])
    axes.set_yticks([])
    picture = _picture(cell.row)
    if picture is None:
        axes.text(0.5, 0.5, "no image", ha="center", va="center", fontsize=6, transform=axes.transAxes)
    else:
        axes.imshow(picture, interpolation="antialiased", aspect="auto")
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_linewidth(0.4 if cell.mark is None else 1.6)
        spine.set_color(INK if cell.mark is None else COLOURS[cell.mark])
        spine.set_linestyle("-" if cell.mark is None else _LINES[cell.mark])
    axes.set_xlabel(_fitting(cell.text, letters), fontsize=7, labelpad=1.5)


def _picture(row: ImageRow) -> np.ndarray | None:
    """Return a picture (side, side, 3) padded with white to a square, or None if it can't be read."""
    try:
        picture = read_image(row.path, row.box, least_side=_SIDE)
    except BadImage:
        return None
    if max(picture.size) > _SIDE:
        picture = ImageOps.contain(picture, (_SIDE, _SIDE), Image.Resampling.LANCZOS)
    square = max(picture.size)
    return np.asarray(ImageOps.pad(picture, (square, square), color="white"))


def rounded(similarity: float) -> str:
    """Return a similarity with two decimals, never -0.00."""
    return f"{round(similarity, 2) + 0.0:.2f}"


def _letters(side: float) -> int:
    """Return how many letters of 7 points fit below a picture."""
    return max(4, int(side * 72 / 4.1))


def _fitting(text: str, letters: int) -> str:
    return "\n".join(line if len(line) <= letters else line[: letters - 1] + "…" for line in text.splitlines())
