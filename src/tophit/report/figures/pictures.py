"""Figures of pictures: queries with their first results, and the images nearest to each proxy of a class."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.images.decode import BadImage, read_image
from tophit.report.drawing import Drawing
from tophit.report.style import COLUMN, INK, PAGE, house_style, new_figure

if TYPE_CHECKING:
    from tophit.report.proxies import LocalCentre

RIGHT, WRONG = "#168f3e", "#cc2929"
_SIDE = 128  # pixels of a picture
_TEXT = 0.17  # inches below a picture, for a line of text
_LINE = 0.12  # for each more
_GAP = 0.05
_HEAD_GAP = 0.12  # between a row's head and its results


class Ranked(Protocol):
    """A query and its first results, best first, as row numbers, with the cosine similarities."""

    @property
    def query(self) -> int:
        """The query's row."""
        ...

    @property
    def results(self) -> Sequence[int]:
        """The rows of its results."""
        ...

    @property
    def scores(self) -> Sequence[float]:
        """Their similarities."""
        ...


@dataclass(frozen=True)
class Cell:
    """A picture with a text of one line or more below it.

    ``right`` frames it green or, dashed, red; None leaves it without a frame.
    """

    row: ImageRow
    text: str
    right: bool | None = None


def gallery_drawing(
    rows: Sequence[ImageRow],
    ranked: Sequence[Ranked],
    k: int = 5,
    name: str = "gallery",
    title: str = "Queries and their first results",
) -> Drawing:
    """Return queries with their k first results, as papers show them: right ones framed green, wrong ones red."""
    numbers: dict[str, list[Any]] = {
        column: [] for column in ("query", "query label", "rank", "image", "label", "similarity", "right")
    }
    lines: list[list[Cell]] = []
    for one in ranked:
        query = rows[one.query]
        cells = [Cell(query, query.label)]
        for rank, (place, score) in enumerate(zip(one.results[:k], one.scores[:k], strict=True), 1):
            found = rows[place]
            right = found.label == query.label
            cells.append(Cell(found, f"{_similarity(score)}\n{found.label}", right))
            values = (str(query.path), query.label, rank, str(found.path), found.label, float(score), int(right))
            for column, value in zip(numbers.values(), values, strict=True):
                column.append(value)
        lines.append(cells)
    caption = (
        "A query (left) and its first results, nearest first, with their cosine similarity and class. Solid "
        "green frame: the same class; dashed red frame: another."
    )
    return Drawing(name, title, caption, numbers, _picture_grid(lines, k + 1, ["query", "nearest images"]))


def centres_drawing(centres: "Sequence[LocalCentre]", classes: int = 4, k: int = 5) -> Drawing:
    """Return the training images nearest to the centres of some classes: those with the most centres in use.

    A centre is a group of proxies that have merged, shown by its first proxy; it is in use if an image of its class is
    nearer to it than to the class's other centres.
    """
    images: Counter[tuple[str, int]] = Counter()
    for one in centres:
        images[one.label, one.centre] += one.images
    used: dict[str, list[LocalCentre]] = {}
    for one in centres:
        if one.proxy == one.centre and images[one.label, one.centre]:
            used.setdefault(one.label, []).append(one)
    chosen = sorted(used, key=lambda label: (-len(used[label]), label))[:classes]
    shown = [one for label in chosen for one in sorted(used[label], key=lambda one: -images[label, one.centre])[:3]]
    numbers: dict[str, list[Any]] = {
        column: [] for column in ("class", "centre", "images", "rank", "image", "label", "similarity")
    }
    lines: list[list[Cell]] = []
    heads: list[str] = []
    for one in shown:
        count = images[one.label, one.centre]
        heads.append(f"{one.label}\ncentre {one.centre + 1}\n{count} images")
        lines.append(
            [Cell(near.row, _similarity(near.similarity), near.row.label == one.label) for near in one.nearest[:k]]
        )
        for rank, near in enumerate(one.nearest[:k], 1):
            values = (one.label, one.centre + 1, count, rank, str(near.row.path), near.row.label, near.similarity)
            for column, value in zip(numbers.values(), values, strict=True):
                column.append(value)
    caption = (
        f"Training images nearest to the centres of the {len(chosen)} classes with the most centres in use (up to 3 "
        "of each), with their cosine similarity to it; they are the nearest of all images, whether or not they "
        "belong to that centre. Left: how many images of the class are nearer to this centre than to "
        "the class's others. Dashed red frame: an image of another class."
    )
    figure = _picture_grid(lines, k, [], heads)
    return Drawing("local_centres", "Local centres", caption, numbers, figure)


def _picture_grid(lines: Sequence[Sequence[Cell]], columns: int, heads: Sequence[str], left: Sequence[str] = ()) -> Any:
    """Draw lines of pictures; ``heads`` stand over the first two columns, ``left`` is text before each line."""
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
        spine.set_linewidth(0.4 if cell.right is None else 1.6)
        spine.set_color(INK if cell.right is None else RIGHT if cell.right else WRONG)
        spine.set_linestyle((0, (2.2, 1.2)) if cell.right is False else "-")
    axes.set_xlabel(_fitting(cell.text, letters), fontsize=7, labelpad=1.5)


def _picture(row: ImageRow) -> np.ndarray | None:
    """Return a square picture (side, side, 3) with white at the sides, or None if it can't be read."""
    from PIL import Image, ImageOps

    try:
        picture = read_image(row.path, row.box, least_side=_SIDE)
    except BadImage:
        return None
    if max(picture.size) > _SIDE:
        picture = ImageOps.contain(picture, (_SIDE, _SIDE), Image.Resampling.LANCZOS)
    square = max(picture.size)
    return np.asarray(ImageOps.pad(picture, (square, square), color="white"))


def _similarity(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def _letters(side: float) -> int:
    """Return how many letters of 7 points fit below a picture."""
    return max(4, int(side * 72 / 4.1))


def _fitting(text: str, letters: int) -> str:
    return "\n".join(line if len(line) <= letters else line[: letters - 1] + "…" for line in text.splitlines())
