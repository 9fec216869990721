"""The frame of a page that is one HTML file: it opens from a disk and requests nothing from a network."""

import base64
import json
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from tophit.files import without_nan

SEARCH_PAGE = Path(__file__).parent.parent / "serve" / "page"  # its style, icon and scripts are used by every page


def page_style() -> str:
    """Return the colours of the search page, which are always the light ones in print."""
    tokens = (SEARCH_PAGE / "style.css").read_text(encoding="utf-8")
    tokens = tokens[: tokens.index("* {")]
    light = tokens[: tokens.index("@media")]
    return tokens + "@media print { " + light.replace("color-scheme: light dark;", "color-scheme: light;") + " }\n"


def page_head(title: str, policy: str, style: str, scripts: str = "", meta: str = "") -> str:
    """Return a page up to the end of its head; ``policy`` is its content security policy."""
    icon = base64.b64encode((SEARCH_PAGE / "icon.svg").read_bytes()).decode("ascii")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta http-equiv="Content-Security-Policy" content="{policy}" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<meta name="color-scheme" content="light dark" />
<meta name="referrer" content="no-referrer" />
{meta}<title>{escape(title)}</title>
<link rel="icon" href="data:image/svg+xml;base64,{icon}" />
<style>
{style}
</style>
{scripts}</head>
"""


def data_script(name: str, value: Any) -> Iterator[str]:
    """Yield an element that holds a value as JSON for scripts; no text in the value can end the element."""
    yield f'<script type="application/json" id="{name}">'
    encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for part in encoder.iterencode(without_nan(value)):
        yield part.replace("<", "\\u003c")
    yield "</script>\n"
