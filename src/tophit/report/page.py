"""The report's file: one HTML page with style, scripts and data inside, which asks no host and opens from a disk."""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tophit.files import replace_file
from tophit.report.pictures import Thumbnails

PAGE = Path(__file__).parent / "page"
SERVED = Path(__file__).parent.parent / "serve" / "page"  # the search page: its look and its map are the report's too
_VENDORED = {
    "preact": "preact.mjs",
    "preact/hooks": "preact-hooks.mjs",
    "htm": "htm.mjs",
    "@preact/signals-core": "signals-core.mjs",
    "@preact/signals": "signals.mjs",
}
_SHARED = ("html.js", "scatter.js", "changes.js")
# Nothing is fetched; pictures may lie in the folder beside a page that was opened from a disk.
_POLICY = "default-src 'none'; img-src data: file: 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline' data:"


def write_page(path: Path, content: Mapping[str, Any], thumbnails: Thumbnails, more_style: str = "") -> None:
    """Write the page, with the folder of its pictures if there is one, the page whole or not at all."""
    from tophit.report.content import describe_pictures

    with replace_file(path) as temporary:
        pictures = describe_pictures(thumbnails.pictures, thumbnails.made, thumbnails.name(path))
        with temporary.open("w", encoding="utf-8") as file:
            file.write(_head(" against ".join(content["models"]), more_style))
            _write_json(file, "report-content", content)
            _write_json(file, "report-pictures", pictures)
            file.write("</body>\n</html>\n")
        thumbnails.place(path)  # last, so that until now the old page had its own pictures


def _head(title: str, more_style: str) -> str:
    style = "\n".join(path.read_text(encoding="utf-8") for path in (SERVED / "style.css", PAGE / "report.css"))
    icon = base64.b64encode((SERVED / "icon.svg").read_bytes()).decode("ascii")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta http-equiv="Content-Security-Policy" content="{_POLICY}" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<meta name="color-scheme" content="light dark" />
<meta name="referrer" content="no-referrer" />
<title>{_escaped(title)} · Tophit report</title>
<link rel="icon" href="data:image/svg+xml;base64,{icon}" />
<style>
{style}
{more_style}
</style>
<script type="importmap">
{json.dumps({"imports": _modules()}, indent=1)}
</script>
<script type="module">import "tophit/report.js";</script>
</head>
<body>
<div id="report"></div>
<noscript>This report needs JavaScript; it asks no host.</noscript>
"""


def _modules() -> dict[str, str]:
    """Return every script by the name it is imported by, as a data address.

    A script inside a data address can't name another by a relative path, so ``./map.js`` becomes ``tophit/map.js``.
    """
    modules = {name: (SERVED / "vendor" / file).read_text(encoding="utf-8") for name, file in _VENDORED.items()}
    own = [*(SERVED / name for name in _SHARED), *sorted(PAGE.glob("*.js"))]
    modules |= {f"tophit/{path.name}": path.read_text(encoding="utf-8") for path in own}
    relative = re.compile(r"""(\bfrom\s*|\bimport\s*)(["'])\./""")
    return {name: _data_address(relative.sub(r"\1\2tophit/", text)) for name, text in modules.items()}


def _data_address(script: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(script.encode("utf-8")).decode("ascii")


def _write_json(file: Any, name: str, value: Any) -> None:
    """Write a value where scripts find it; no text in it can end the element, nor begin a comment or script."""
    file.write(f'<script type="application/json" id="{name}">')
    for part in json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).iterencode(value):
        file.write(part.replace("<", "\\u003c"))
    file.write("</script>\n")


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)
