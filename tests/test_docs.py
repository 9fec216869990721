"""The pages for users: every relative link and image leads somewhere, and lines are short enough to read in a diff."""

import re
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
WRAPPED = [page for page in PAGES if page.name != "claims.md"]  # which a program writes
LONGEST_LINE = 120

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ELSEWHERE = re.compile(r"[a-z][a-z+.-]*:")


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _prose(page: Path) -> list[tuple[int, str]]:
    """Return the numbered lines of a page that are outside of code blocks."""
    lines, code = [], False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            lines.append((number, line))
    return lines


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    titles = [line.lstrip("#").strip().lower() for _, line in _prose(page) if line.startswith("#")]
    return {"".join(c for c in title if _kept(c)).replace(" ", "-") for title in titles}


def _kept(character: str) -> bool:
    return character in " -_" or unicodedata.category(character)[0] in "LN"


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_relative_links_resolve(page: Path) -> None:
    broken = []
    for number, line in _prose(page):
        for target in _LINK.findall(line):
            path, _, anchor = target.partition("#")
            if _ELSEWHERE.match(target):
                continue
            file = (page.parent / path).resolve() if path else page
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                broken.append(f"{_name(page)}:{number}: {target}")
    assert not broken


@pytest.mark.parametrize("page", WRAPPED, ids=_name)
def test_lines_are_not_too_long(page: Path) -> None:
    """Tables, code blocks and lines with a link, which can't be broken, may be longer."""
    long = [
        f"{_name(page)}:{number}: {len(line)} characters"
        for number, line in _prose(page)
        if len(line) > LONGEST_LINE and not line.startswith("|") and not _LINK.search(line)
    ]
    assert not long
