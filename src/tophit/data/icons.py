"""The demo set: the same icon as drawn by independent icon families, rendered from their fonts.

A class is an icon's name, an image is one drawing of it. The labels are the names the designers gave, so there is
real label noise: synonyms (home, house) are different classes, and some names stand for two different pictures.
"""

import hashlib
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFont

from tophit.data.icon_fonts import ICON_FONTS, IconFont
from tophit.data.manifest import ImageRow, Manifest, read_manifest, write_manifest
from tophit.data.splits import split_classes
from tophit.files import cache_folder, replace_file
from tophit.progress import Progress

SIDE = 64
DRAWN_SIDE = 56  # the drawing's longer side; the rest is margin
LEAST_FAMILIES = 4
_RENDER_SIDE = 224  # drawn large, then reduced, so that thin strokes keep their weight
_SET_VERSION = 1  # raise when the pictures or the split change: the cache is then rebuilt


@dataclass(frozen=True)
class Drawing:
    """One family's drawing of an icon: its class, where it comes from, and the picture as PNG bytes."""

    name: str
    font: IconFont
    png: bytes


def icon_set(folder: Path | None = None, progress: Progress | None = None) -> Manifest:
    """Return the demo set, building it into ``folder`` (default: the cache) if it is not there yet.

    Half of the classes are for training, half for testing, in a fixed random order. Building is deterministic.
    """
    folder = folder or cache_folder() / f"icons-v{_SET_VERSION}"
    manifest_path = folder / "manifest.csv"
    if not manifest_path.is_file():
        _build(folder, manifest_path, progress)
    return read_manifest(manifest_path)


def _build(folder: Path, manifest_path: Path, progress: Progress | None) -> None:
    drawings = _keep_wide_classes(_drop_repeated(_draw_all(progress)))
    splits = split_classes(sorted({drawing.name for drawing in drawings}), test_share=0.5, seed=0)
    rows = []
    for drawing in drawings:
        path = folder / "images" / drawing.name / f"{drawing.font.family}-{drawing.font.style}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            temporary.write_bytes(drawing.png)
        source = {"family": drawing.font.family, "style": drawing.font.style}
        rows.append(ImageRow(path, drawing.name, splits[drawing.name], metadata=source))
    write_manifest(Manifest(tuple(rows)), manifest_path)


def _draw_all(progress: Progress | None) -> Iterator[Drawing]:
    """Draw each icon whose name occurs in enough families."""
    glyphs = [(font, font.glyphs()) for font in ICON_FONTS]
    families: dict[str, set[str]] = defaultdict(set)
    for font, codes in glyphs:
        for name in codes:
            families[name].add(font.family)
    for font, codes in progress(glyphs, len(glyphs)) if progress else glyphs:
        typeface = ImageFont.truetype(font.path(font.font), _RENDER_SIDE, layout_engine=ImageFont.Layout.BASIC)
        for name, code in codes.items():
            if len(families[name]) >= LEAST_FAMILIES and (picture := render(typeface, chr(code))) is not None:
                yield Drawing(name, font, _png(picture))


def render(typeface: ImageFont.FreeTypeFont, character: str) -> Image.Image | None:
    """Draw one glyph black on white, centred, its longer side ``DRAWN_SIDE`` long; None if the glyph is empty."""
    canvas = Image.new("L", (3 * _RENDER_SIDE, 3 * _RENDER_SIDE), 0)
    ImageDraw.Draw(canvas).text((_RENDER_SIDE, _RENDER_SIDE), character, fill=255, font=typeface)
    bounds = canvas.getbbox()
    if bounds is None:
        return None
    ink = canvas.crop(bounds)
    scale = DRAWN_SIDE / max(ink.size)
    size = (max(1, round(ink.width * scale)), max(1, round(ink.height * scale)))
    page = Image.new("L", (SIDE, SIDE), 0)
    page.paste(ink.resize(size, Image.Resampling.BOX), ((SIDE - size[0]) // 2, (SIDE - size[1]) // 2))
    return ImageChops.invert(page)


def _drop_repeated(drawings: Iterable[Drawing]) -> list[Drawing]:
    """Keep each picture once: fonts have aliases, and families borrow from each other.

    A picture that occurs under several names stays with the name that has the most drawings.
    """
    drawings = list(drawings)
    size: dict[str, int] = defaultdict(int)
    for drawing in drawings:
        size[drawing.name] += 1
    kept: dict[bytes, Drawing] = {}
    for drawing in sorted(drawings, key=lambda d: (-size[d.name], d.name)):
        kept.setdefault(hashlib.sha256(drawing.png).digest(), drawing)
    return sorted(kept.values(), key=lambda d: (d.name, d.font.family, d.font.style))


def _keep_wide_classes(drawings: list[Drawing]) -> list[Drawing]:
    families: dict[str, set[str]] = defaultdict(set)
    for drawing in drawings:
        families[drawing.name].add(drawing.font.family)
    return [drawing for drawing in drawings if len(families[drawing.name]) >= LEAST_FAMILIES]


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def pixel_vectors(manifest: Manifest, side: int = 32) -> np.ndarray:
    """Return the grey pixels of every image as rows (N, side * side): a baseline without any learning."""
    pictures = (Image.open(row.path).convert("L").resize((side, side)) for row in manifest)
    return np.stack([255.0 - np.asarray(picture, np.float32).ravel() for picture in pictures])
