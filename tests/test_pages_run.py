"""Every block of Python on the pages for users runs, in order, in a folder with small pictures.

A block that can't says why, in a comment before it: ``<!-- not run: needs an account -->``. CONTRIBUTING's blocks are a
package, which ``tests/test_outside.py`` builds and uses.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tophit
from tophit import registry
from tophit.data.folders import open_data
from tophit.data.manifest import Manifest, write_manifest

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"(?P<why><!-- not run: \S[^>]*-->\n\n)?^```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
PAGES = [
    page
    for page in sorted([ROOT / "README.md", ROOT / "examples" / "README.md", *(ROOT / "docs").rglob("*.md")])
    if "```python" in page.read_text(encoding="utf-8")
]


@pytest.fixture
def names(working: Path) -> Iterator[dict[str, Any]]:
    """What pages take for granted: a run, an index, images, vectors and their labels."""
    small = {"backbone": "small", "weights": "random", "size": 32, "dim": 128}
    proxies = {"name": "multi-proxy-anchor", "proxies_per_class": 2}
    result = tophit.train("photos/", out="runs/mine", loss=proxies, embedder=small, schedule={"epochs": 1}, log=[])
    (working / "runs" / "mpa").symlink_to(working / "runs" / "mine")
    rows = open_data("photos/").rows
    if not (working / "mine.index").exists():
        priced = [type(row)(row.path, row.label, row.split, metadata={"price": i}) for i, row in enumerate(rows)]
        write_manifest(Manifest(tuple(priced), "photos"), "priced.csv")
        tophit.index("priced.csv", result, out="mine.index").close()
    found = tophit.embed("photos/", result)
    yield {
        "array": np.zeros((40, 30, 3), np.uint8),
        "embedder": result.embedder,
        "ids": found.paths,
        "image": Image.new("RGB", (40, 30)),
        "labels": np.asarray(found.labels),
        "metadata": [{"label": label, "price": 5} for label in found.labels],
        "paths": found.paths,
        "queries": found.vectors[:2],
        "result": result,
        "rows": rows,
        "rows_of_other_splits": [],
        "vectors": found.vectors,
    }
    for key in [key for key, entry in registry._registered.items() if entry.module == "a_page"]:
        del registry._registered[key]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_of_a_page_runs(page: Path, names: dict[str, Any]) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    assert len(blocks) == len(re.findall(r"^ *```python$", text, re.MULTILINE)), "a block is not found by this test"
    space = {**names, "__name__": "a_page"}
    for block in blocks:
        code = block["code"]
        if block["why"] is None:
            lines_before = text[: block.start("code")].count("\n")
            exec(compile("\n" * lines_before + code, str(page), "exec"), space)
        else:
            ast.parse(code)


def test_the_readmes_ten_lines_are_the_quickstart() -> None:
    block = _BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert block is not None
    script = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert script.partition('"""\n\n')[2] == block["code"]
    assert len([line for line in block["code"].splitlines() if line]) <= 10
