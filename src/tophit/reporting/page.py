"""The file of a report: one HTML page with styles, scripts and data inside, which requests nothing from a network."""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tophit.figures import DRAWING_CSS
from tophit.figures.html import SEARCH_PAGE, data_script, page_head
from tophit.files import replace_file
from tophit.reporting.pictures import Thumbnails

PAGE = Path(__file__).parent / "page"
_VENDORED = {
    "preact": "preact.mjs",
    "preact/hooks": "preact-hooks.mjs",
    "htm": "htm.mjs",
    "@preact/signals-core": "signals-core.mjs",
    "@preact/signals": "signals.mjs",
}
_SHARED = ("html.js", "scatter.js", "shapes.js", "colours.js", "map_names.js", "legend.js", "changes.js")
# Nothing is fetched; pictures may be files in the folder next to a page that was opened from a disk.
_POLICY = "default-src 'none'; img-src data: file: 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline' data:"


def write_page(path: Path, content: Mapping[str, Any], thumbnails: Thumbnails, meta: str = "") -> None:
    """Write the page atomically, with lines ``meta`` in its head, and the folder of its pictures if there is one."""
    style = [path.read_text(encoding="utf-8") for path in (SEARCH_PAGE / "style.css", PAGE / "report.css")]
    scripts = f"""<script type="importmap">
{json.dumps({"imports": _modules()}, indent=1)}
</script>
<script type="module">import "tophit/report.js";</script>
"""
    title = f"{' against '.join(content['models'])} · Tophit report"
    with replace_file(path) as temporary:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(page_head(title, _POLICY, "\n".join([*style, DRAWING_CSS]), scripts, meta))
            file.write('<body>\n<div id="report"></div>\n<noscript>This report needs JavaScript.</noscript>\n')
            file.writelines(data_script("report-content", content))
            file.writelines(data_script("report-pictures", thumbnails.describe(path)))
            file.write("</body>\n</html>\n")
        thumbnails.place(path)  # last, so that the old page keeps its pictures until it is replaced


def _modules() -> dict[str, str]:
    """Return every script as a data URL, by the name under which it is imported.

    A script in a data URL can't import by a relative path, so ``./map.js`` becomes ``tophit/map.js``.
    """
    modules = {name: (SEARCH_PAGE / "vendor" / file).read_text(encoding="utf-8") for name, file in _VENDORED.items()}
    own = [*(SEARCH_PAGE / name for name in _SHARED), *sorted(PAGE.glob("*.js"))]
    modules |= {f"tophit/{path.name}": path.read_text(encoding="utf-8") for path in own}
    relative = re.compile(r"""(\bfrom\s*|\bimport\s*)(["'])\./""")
    return {name: _data_url(relative.sub(r"\1\2tophit/", text)) for name, text in modules.items()}


def _data_url(script: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(script.encode("utf-8")).decode("ascii")
