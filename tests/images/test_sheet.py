from pathlib import Path

import numpy as np
from PIL import Image

from conftest import draw_picture
from tophit.images.sheet import GREEN, RED, SheetCell, contact_sheet


def colours(path: Path) -> set[tuple[int, ...]]:
    with Image.open(path) as sheet:
        return {tuple(pixel) for pixel in np.asarray(sheet).reshape(-1, 3).tolist()}


def test_right_results_are_framed_green_and_wrong_ones_red(tmp_path: Path) -> None:
    draw_picture(1, 1).save(tmp_path / "a.png")
    query = SheetCell(tmp_path / "a.png", "query")
    for right, present, absent in ((True, GREEN, RED), (False, RED, GREEN)):
        contact_sheet([(query, [SheetCell(tmp_path / "a.png", "label\n0.9", right)])], tmp_path / "sheet.png")
        assert present in colours(tmp_path / "sheet.png")
        assert absent not in colours(tmp_path / "sheet.png")


def test_every_cell_has_its_place_and_an_unreadable_picture_does_not_stop_the_sheet(tmp_path: Path) -> None:
    draw_picture(1, 1, side=300).save(tmp_path / "a.png")
    cell = SheetCell(tmp_path / "a.png", "a caption that is much too long for its cell\nsecond line\nthird")
    missing = SheetCell(tmp_path / "gone.png", "gone", False)
    contact_sheet([(cell, [cell, missing]), (cell, [])], tmp_path / "two.png")
    contact_sheet([(cell, [cell])], tmp_path / "one.png")
    with Image.open(tmp_path / "two.png") as two, Image.open(tmp_path / "one.png") as one:
        assert two.width > one.width
        assert two.height > one.height
