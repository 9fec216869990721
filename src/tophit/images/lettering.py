"""Text on pictures in any script: a font that comes with the package, and for what it lacks the system's fonts.

``fonts/DejaVuSans.ttf`` has Latin with all accents, Greek and Cyrillic (its licence is beside it). It was cut from
Debian's fonts-dejavu-core 2.37 with ``pyftsubset --no-hinting --notdef-outline``.
"""

import os
import sys
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

_BUNDLED = Path(__file__).parent / "fonts" / "DejaVuSans.ttf"
_NO_CHARACTER = "\uffff"  # no font has it, so it is drawn as the box that stands for a missing character
_ENDINGS = (".ttf", ".otf", ".ttc")


class Lettering:
    """Draws text of a size; characters that no font has are drawn as boxes and remembered in ``missing``."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.missing: set[str] = set()

    def length(self, text: str) -> float:
        """Return how wide a text is, in pixels."""
        return sum(_font(path, self.size).getlength(part) for path, part in self._runs(text))

    def draw(self, draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, fill: tuple[int, ...]) -> None:
        """Draw a line of text whose top left corner is at a place."""
        x, y = place
        base = y + _font(_BUNDLED, self.size).getmetrics()[0]
        for path, part in self._runs(text):
            font = _font(path, self.size)
            draw.text((x, base), part, fill=fill, font=font, anchor="ls")
            x += font.getlength(part)

    def fit(self, text: str, width: float) -> str:
        """Return a text, shortened with an ellipsis if it is too wide."""
        if self.length(text) <= width:
            return text
        while text and self.length(text + "…") > width:
            text = text[:-1]
        return text + "…"

    def note(self) -> str:
        """Return a sentence on characters that no font had; empty if there were none."""
        if not self.missing:
            return ""
        some = "".join(sorted(self.missing)[:12])
        return f"No font here has these characters, so they are drawn as boxes: {some}. Install one, such as Noto."

    def _runs(self, text: str) -> Iterator[tuple[Path, str]]:
        """Split a text into runs of the same font."""
        for path, characters in groupby(text, self._font_of):
            yield path, "".join(characters)

    def _font_of(self, character: str) -> Path:
        found = font_for(character)
        if found is None:
            self.missing.add(character)
        return found or _BUNDLED


@cache
def font_for(character: str) -> Path | None:
    """Return the font that has a character: the bundled one, else the first of the system that does, else None."""
    if not character.isprintable() or character.isspace():
        return _BUNDLED
    return next((path for path in (_BUNDLED, *_system_fonts()) if has_character(path, character)), None)


def has_character(path: Path, character: str) -> bool:
    """Return whether a font draws a character otherwise than as its box for missing ones."""
    try:
        drawn = _drawn(path, character)
    except (OSError, ValueError):  # not every file of the system is a font that can be read
        return False
    return drawn != _drawn(path, _NO_CHARACTER) and any(drawn)


@cache
def _drawn(path: Path, character: str) -> bytes:
    picture = Image.new("L", (48, 48))
    ImageDraw.Draw(picture).text((8, 32), character, fill=255, font=_font(path, 24), anchor="ls")
    return picture.tobytes()


@cache
def _font(path: Path, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size)


@cache
def _system_fonts() -> tuple[Path, ...]:
    """Return the system's fonts: plain and regular ones first, so that a run looks like the text around it."""
    home = Path.home()
    folders = [Path("/usr/share/fonts"), Path("/usr/local/share/fonts"), home / ".fonts", home / ".local/share/fonts"]
    if sys.platform == "darwin":
        folders = [Path("/System/Library/Fonts"), Path("/Library/Fonts"), home / "Library/Fonts"]
    elif sys.platform == "win32":
        folders = [Path(os.environ.get("WINDIR", "C:/Windows")) / "Fonts"]
    found = [path for folder in folders for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS]
    plain = ("Sans", "Regular", "CJK")
    unlike = ("Bold", "Italic", "Oblique", "Mono", "Serif", "Condensed")
    return tuple(
        sorted(
            found,
            key=lambda path: (
                sum(word in path.name for word in unlike) - sum(word in path.name for word in plain),
                path.name,
            ),
        )
    )
