"""Hooks of the site: pages that stand in the root of the repository become pages of it."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

_ELSEWHERE, _SCRIPT = "https://unpkg.com/iframe-worker/shim", "search_from_disk.js"
ROOT = Path(__file__).parents[1]
PAGES = {
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
    "conduct.md": "CODE_OF_CONDUCT.md",
}


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages of the root, with links as they are seen from docs/."""
    for name, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Lead links to pages of the root to where they are on the site."""
    for name, source in PAGES.items():
        markdown = re.sub(rf"\]\((?:\.\./)+{re.escape(source)}\)", f"]({name})", markdown)
    return markdown


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """Load the script that lets the search work from a disk from the site itself, not from another host."""
    return output.replace(_ELSEWHERE, get_relative_url(_SCRIPT, page.url))


def on_post_template(output: str, *, template_name: str, config: Any) -> str:
    """Do the same in pages without a source, such as 404.html."""
    return output.replace(_ELSEWHERE, f"/{_SCRIPT}")
