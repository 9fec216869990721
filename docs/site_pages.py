"""Hooks of the site: pages that stand in the root of the repository become pages of it."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

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
