"""A drawing: a figure fit for a paper, with the numbers behind it, for a page and as files."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tophit.figures.style import INK, SERIES, SURFACE, house_style
from tophit.files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Column = Sequence[float | int | str] | np.ndarray
_DOTS_PER_INCH = 300
_PAGE_SCALE = 1.65  # CSS pixels per point at most: 8 pt become 13 px, the size of the page's small text
# Colours that are readable on a dark background; each has the hue of its counterpart in SERIES.
_DARK_SERIES = ("#56a8e0", "#f0a64a", "#3fcf9f", "#e58fc0", "#7fcdf5", "#f0854d", "#a9abb4")

# CSS rules for a page with drawings: the colours of light and dark mode. `--ink` and `--surface` are the page's own.
DRAWING_CSS = (
    "svg.drawing { display: block; width: 100%; height: auto; color: var(--ink, #1b1c22); font-family: inherit }\n"
    + ":root { "
    + " ".join(f"--series-{number}: {colour};" for number, colour in enumerate(SERIES, 1))
    + " }\n@media (prefers-color-scheme: dark) { @media not print { :root { "
    + " ".join(f"--series-{number}: {colour};" for number, colour in enumerate(_DARK_SERIES, 1))
    + " } } }\n"
)


@dataclass(frozen=True)
class Drawing:
    """A figure with its title, a caption (what it shows, how it was measured) and the columns of its CSV file.

    ``name`` is the stem of its files, such as ``precision_recall``; names on one page must differ. Columns may have
    different lengths; shorter ones end with empty cells.
    """

    name: str
    title: str
    caption: str
    numbers: Mapping[str, Column]
    figure: "Figure"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(f"a drawing's name has lower-case letters, digits and underscores only, not '{self.name}'")

    def svg(self) -> str:
        """Return the figure as an element of an HTML page.

        It scales to the width of its column, has unique ids, keeps text as text in the page's font, and uses the
        page's colours (``DRAWING_CSS``), so that it is readable in light and dark mode.
        """
        text = self._saved("svg", fonttype="none", facecolor="none").decode("utf-8")
        return _for_page(text, self.name, self.title)

    def files(self) -> dict[str, bytes]:
        """Return the contents of its files by suffix: the same bytes for the same figure."""
        return {
            "png": self._saved("png"),
            "svg": self._saved("svg"),
            "pdf": self._saved("pdf"),
            "csv": self.csv().encode("utf-8"),
        }

    def csv(self) -> str:
        """Return the numbers behind the figure as CSV."""
        return _csv(self.numbers)

    def _saved(self, kind: str, fonttype: str = "path", facecolor: str = "white") -> bytes:
        dated = {"svg": "Date", "pdf": "CreationDate"}
        settings = {"svg.hashsalt": self.name, "svg.fonttype": fonttype, "pdf.fonttype": 42}
        data = io.BytesIO()
        with house_style(settings):
            self.figure.savefig(
                data,
                format=kind,
                dpi=_DOTS_PER_INCH,
                facecolor=facecolor,
                metadata={dated[kind]: None} if kind in dated else None,
            )
        return data.getvalue()


def write_drawings(drawings: Iterable[Drawing], folder: str | Path) -> list[Path]:
    """Write each drawing as PNG, SVG, PDF and CSV into a folder, each file atomically; return their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for drawing in drawings:
        for ending, content in drawing.files().items():
            paths.append(folder / f"{drawing.name}.{ending}")
            with replace_file(paths[-1]) as temporary:
                temporary.write_bytes(content)
    return paths


def _csv(numbers: Mapping[str, Column]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(numbers)
    columns = [column.tolist() if isinstance(column, np.ndarray) else list(column) for column in numbers.values()]
    for row in range(max(map(len, columns), default=0)):
        writer.writerow([_cell(column[row]) if row < len(column) else "" for column in columns])
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Return a number in 9 digits, which is more than a figure shows; an empty cell for NaN."""
    if isinstance(value, str | int):
        return value
    return "" if value != value else f"{float(value):.9g}"


def _for_page(text: str, name: str, title: str) -> str:
    """Turn an SVG file into an element of a page."""
    box = re.search(r'viewBox="([^"]+)"', text)
    assert box is not None
    width = float(box[1].split()[2])
    inner = text[text.index(">", text.index("<svg")) + 1 :]
    inner = re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</style>\s*</defs>", "", inner, flags=re.DOTALL
    )
    inner = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', inner)
    inner = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", inner)
    inner = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', inner)
    inner = inner.replace("xlink:href", "href")
    inner = re.sub(r"font: ([0-9.]+px) [^;\"]*", r"font-size: \1", inner)
    inner = re.sub(r"font-family: [^;\"]*;? ?", "", inner)
    for colour, variable in _page_colours().items():
        inner = inner.replace(colour, variable)
    inner = re.sub(r"\n\s*", "\n", inner)
    return (
        f'<svg class="drawing" role="img" aria-label="{escape(title)}" viewBox="{box[1]}" '
        f'style="max-width: {width * _PAGE_SCALE:.0f}px; stroke-linejoin: round; stroke-linecap: butt">{inner.rstrip()}'
    )


def _page_colours() -> dict[str, str]:
    """Return the page's colour for each colour of a figure."""
    series = {colour.lower(): f"var(--series-{number}, {colour})" for number, colour in enumerate(SERIES, 1)}
    return {INK: "currentColor", SURFACE: "var(--surface, #ffffff)", **series}
