"""Drawings: the files are right and reproducible, and what stands on a page is of the page."""

import csv
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tophit.errors import UsageError
from tophit.figures import DRAWING_CSS, Drawing, style, write_drawings
from tophit.figures.style import COLUMN, house_style, new_axes, series

ROOT = Path(__file__).parents[2]


def drawing(name: str = "a_line", height: float = 2.0) -> Drawing:
    with house_style():
        figure, axes = new_axes(COLUMN, height)
        axes.plot([0, 1, 2], [0.5, 0.25, 1.0], label="it", **series(0))
        axes.set_xlabel("step <&>")
        axes.legend()
    return Drawing(
        name, "A line <b>", "Seen.", {"x": [0, 1, 2], "y": np.array([0.5, 0.25, 1.0]), "said": ["a, b"]}, figure
    )


def test_files_are_written_with_their_numbers(tmp_path: Path) -> None:
    paths = write_drawings([drawing()], tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["a_line.png", "a_line.svg", "a_line.pdf", "a_line.csv"]
    with Image.open(paths[0]) as picture:
        assert picture.size == (round(COLUMN * 300), 600)
    ElementTree.parse(paths[1])
    pdf = paths[2].read_bytes()
    assert b"/FontFile2" in pdf  # TrueType fonts inside, as printers of papers want them
    assert b"/Type3" not in pdf
    with paths[3].open(newline="") as file:
        assert list(csv.reader(file)) == [["x", "y", "said"], ["0", "0.5", "a, b"], ["1", "0.25", ""], ["2", "1", ""]]
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(path.name for path in paths)


def test_bytes_are_the_same_in_another_process(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom tests.reporting.test_drawings import drawing\n"
        "from tophit.figures import write_drawings\nwrite_drawings([drawing()], sys.argv[1])"
    )
    write_drawings([drawing()], tmp_path / "0")
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "1")],
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "HOME": str(tmp_path)},
    )
    for path in (tmp_path / "0").iterdir():
        assert path.read_bytes() == (tmp_path / "1" / path.name).read_bytes(), path.name


def test_two_drawings_on_a_page_share_no_id() -> None:
    one, two = drawing("one").svg(), drawing("two").svg()
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    for text, own in zip((one, two), ids, strict=True):
        asked = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text)
        assert asked
        assert {a or b for a, b in asked} <= own


def test_a_drawing_on_a_page_takes_the_pages_width_font_and_colours() -> None:
    text = drawing().svg()
    ElementTree.fromstring(text)  # well formed, though without the names of its parts
    start = text[: text.index(">")]
    assert "viewBox=" in start
    assert not re.search(r"\b(width|height)=", start)
    assert 'aria-label="A line &lt;b&gt;"' in start
    assert "step &lt;&amp;&gt;</text>" in text
    assert "font-family" not in text
    assert "DejaVu" not in text
    assert "currentColor" in text
    assert "var(--series-1, " in text
    assert style.INK not in text
    assert "<style" not in text
    assert "://" not in text
    assert "--series-1:" in DRAWING_CSS


def test_the_users_settings_of_matplotlib_neither_change_a_figure_nor_are_changed() -> None:
    import matplotlib as mpl

    plain = drawing().files()["svg"]
    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.hashsalt": "mine"}):
        assert drawing().files()["svg"] == plain
        assert mpl.rcParams["font.size"] == 30


def test_a_name_must_be_a_stem() -> None:
    with pytest.raises(ValueError, match=r"not 'A line/..'"):
        drawing("A line/..")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'tophit\[report\]'"):
        drawing()


def test_matplotlib_is_imported_only_for_figures() -> None:
    script = (
        "import sys, tophit, tophit.cli, tophit.comparing.comparison, tophit.figures, tophit.reporting.make\n"
        "assert not {'matplotlib', 'pyplot'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
