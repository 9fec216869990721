"""The documentation as a site: it builds without a warning, with every page, and loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
_LOADED = re.compile(r"""<(?:script|link|img|iframe)[^>]+?(?:src|href)=["'](?P<at>https?:)?//[^"']+["']""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_every_page_is_there_and_the_reference_is_made_from_docstrings(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not (site / page).is_file()} == set()
    functions = (site / "python" / "functions.html").read_text(encoding="utf-8")
    assert "A folder of class folders, a manifest, a feature file" in functions  # an argument of train
    assert "Top-k precision loss" in (site / "python" / "losses.html").read_text(encoding="utf-8")
    assert "semi-hard" in (site / "search" / "search_index.json").read_text(encoding="utf-8")  # search works offline


@pytest.mark.slow
def test_a_page_loads_nothing_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not _LOADED.search(page.read_text(encoding="utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?https?:|@import", style.read_text(encoding="utf-8")), style


@pytest.mark.slow
def test_opened_from_a_disk_the_search_finds_pages_and_nothing_is_requested_elsewhere(
    site: Path, browser: "Browser"
) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in ("index", "concepts", "python/functions"):
        page.goto((site / f"{name}.html").as_uri())
        page.locator("h1").wait_for()
    page.locator("input.md-search__input").click()
    page.keyboard.type("semi-hard")
    page.locator(".md-search-result__item").first.wait_for()
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob", "about"}
    page.close()
