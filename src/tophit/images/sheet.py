"""Contact sheets: one query per row with its first results, in green frames if right and in red ones if wrong."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageOps

from tophit.files import replace_file
from tophit.images.decode import BadImage, read_image
from tophit.images.lettering import Lettering

GREEN, RED, GREY = (22, 143, 62), (204, 41, 41), (110, 110, 110)
Rows = Sequence[tuple["SheetCell", Sequence["SheetCell"]]]
_CELL, _FRAME, _GAP, _TEXT = 112, 5, 12, 34


@dataclass(frozen=True)
class SheetCell:
    """A picture with a caption; the frame is green or red by ``right``, grey for None (a query, or no label)."""

    path: Path
    caption: str
    right: bool | None = None


def contact_sheet(rows: Rows, path: str | Path) -> str:
    """Draw queries and their results into a PNG file; return a sentence on letters that no font has, if there are."""
    letters = Lettering(13)
    with replace_file(path) as temporary:
        _draw(rows, letters).save(temporary, "PNG")
    return letters.note()


def sheet_html(rows: Rows) -> str:
    """Draw queries and their results as an element of a page or notebook."""
    data = io.BytesIO()
    _draw(rows, Lettering(13)).save(data, "PNG")
    address = f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode('ascii')}"
    return f'<img alt="Queries and their first results" src="{address}">'


def _draw(rows: Rows, letters: Lettering) -> Image.Image:
    columns = 1 + max((len(results) for _, results in rows), default=0)
    step_x, step_y = _CELL + _GAP, _CELL + _TEXT + _GAP
    sheet = Image.new("RGB", (columns * step_x + 3 * _GAP, len(rows) * step_y + _GAP + 24), "white")
    draw = ImageDraw.Draw(sheet)
    letters.draw(draw, (_GAP, _GAP), "query", GREY)
    judged = any(cell.right is not None for _, results in rows for cell in results)
    title = "first results (green: same label, red: another)" if judged else "first results"
    letters.draw(draw, (step_x + 2 * _GAP, _GAP), title, GREY)
    for number, (query, results) in enumerate(rows):
        y = _GAP + 24 + number * step_y
        _draw_cell(sheet, draw, letters, query, _GAP, y)
        for place, result in enumerate(results, 1):
            _draw_cell(sheet, draw, letters, result, place * step_x + 2 * _GAP, y)
    return sheet


def _draw_cell(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, letters: Lettering, cell: SheetCell, x: int, y: int
) -> None:
    colour = GREY if cell.right is None else GREEN if cell.right else RED
    frame = 1 if cell.right is None else _FRAME
    draw.rectangle((x, y, x + _CELL - 1, y + _CELL - 1), outline=colour, width=frame)
    inner = _CELL - 2 * _FRAME
    try:
        picture = ImageOps.contain(read_image(cell.path, least_side=inner), (inner, inner))
        corner = (x + (_CELL - picture.width) // 2, y + (_CELL - picture.height) // 2)
        sheet.paste(picture, corner)
    except BadImage:
        letters.draw(draw, (x + 10, y + _CELL // 2 - 8), "unreadable", RED)
    for line, text in enumerate(cell.caption.splitlines()[:2]):
        letters.draw(draw, (x, y + _CELL + 2 + 15 * line), letters.fit(text, _CELL), GREY)
