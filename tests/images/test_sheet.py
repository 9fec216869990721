import unicodedata
from pathlib import Path

import numpy as np
import pytest
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw, ImageFont

from conftest import draw_picture
from tophit.images import lettering
from tophit.images.lettering import Lettering
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


FONT = Path(lettering.__file__).parent / "fonts" / "DejaVuSans.ttf"
SCRIPTS = {
    "Latin with accents": "ÄÖÜäöüßÉèçñØåæœŁłŽšĐ€ğışḾễ",
    "Greek": "ΑΒΓΔΩαβγδωάέ",
    "Cyrillic": "АБВГДЯабвгдяЁїђ",
    "signs": "…„“”«»°½→•",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_bundled_font_draws_every_letter_and_not_its_box(script: str) -> None:
    """Drawn as pictures, and compared with the picture of .notdef; and the font's own table says the same."""
    font = ImageFont.truetype(FONT, 20)
    table = TTFont(FONT).getBestCmap()

    def drawn(text: str) -> bytes:
        sheet = Image.new("L", (40, 40))
        ImageDraw.Draw(sheet).text((5, 5), text, fill=255, font=font)
        return sheet.tobytes()

    box, pictures = drawn("\uffff"), set()
    for letter in SCRIPTS[script]:
        assert ord(letter) in table, unicodedata.name(letter)
        assert drawn(letter) != box, unicodedata.name(letter)
        assert lettering.font_for(letter) == FONT
        pictures.add(drawn(letter))
    assert len(pictures) > 0.8 * len(SCRIPTS[script])  # a few letters look alike, such as a Greek and a Latin A
    assert ord("中") not in table
    assert not lettering.has_character(FONT, "中")


def test_a_sheet_with_an_umlaut_is_not_the_one_with_a_box(tmp_path: Path) -> None:
    draw_picture(1, 1).save(tmp_path / "a.png")

    def sheet(caption: str) -> bytes:
        assert contact_sheet([(SheetCell(tmp_path / "a.png", caption), [])], tmp_path / "s.png") == ""
        with Image.open(tmp_path / "s.png") as made:
            return made.tobytes()

    assert sheet("Äpfel") != sheet("Apfel") != sheet("Öpfel")
    old = ImageFont.load_default(13)  # what sheets were drawn with: the same box for both
    assert bytes(old.getmask("Ж")) == bytes(old.getmask("\uffff"))


def test_other_scripts_come_from_the_system_or_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw_picture(1, 1).save(tmp_path / "a.png")
    rows = [(SheetCell(tmp_path / "a.png", "kiwi 中文 и"), [])]
    lettering.font_for.cache_clear()
    monkeypatch.setattr(lettering, "_system_fonts", lambda: (tmp_path / "broken.ttf",))
    (tmp_path / "broken.ttf").write_bytes(b"no font")
    told = contact_sheet(rows, tmp_path / "without.png")
    assert "中" in told
    assert "文" in told
    assert "kiwi" not in told
    lettering.font_for.cache_clear()
    other = font_with_one_letter(tmp_path / "other.ttf", "中", "文")
    monkeypatch.setattr(lettering, "_system_fonts", lambda: (tmp_path / "broken.ttf", other))
    assert contact_sheet(rows, tmp_path / "with.png") == ""
    letters = Lettering(13)
    assert letters.length("中") > 0
    assert letters.fit("kiwi 中文 " * 9, 100).endswith("…")
    with Image.open(tmp_path / "without.png") as one, Image.open(tmp_path / "with.png") as two:
        assert one.tobytes() != two.tobytes()
    lettering.font_for.cache_clear()


def font_with_one_letter(path: Path, *letters: str) -> Path:
    """A copy of the bundled font whose A also stands for other letters."""
    font = TTFont(FONT)
    for table in font["cmap"].tables:
        if table.isUnicode():
            table.cmap.update({ord(letter): "A" for letter in letters})
    font.save(path)
    return path
