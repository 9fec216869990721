"""The page ``/docs``: the HTTP API as plain HTML, made from its OpenAPI description. It needs no scripts."""

from collections.abc import Iterator
from html import escape
from typing import Any


def api_page(described: dict[str, Any]) -> str:
    """Return a page that lists every route of an OpenAPI description and says where the description is."""
    routes = "\n".join(_routes(described["paths"]))
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Tophit: the HTTP API</title>
<link rel="icon" href="/page/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/page/style.css"></head>
<body><main class="api">
<h1>The HTTP API</h1>
<p>{escape(described["info"]["description"])}</p>
<p>The whole description, with the shape of every request and answer, is
<a href="/openapi.json">/openapi.json</a> (OpenAPI {escape(described["openapi"])}); any OpenAPI tool reads it.</p>
<table><thead><tr><th>Route</th><th>What it does</th><th>Parameters</th></tr></thead><tbody>
{routes}
</tbody></table>
</main></body></html>
"""


def _routes(paths: dict[str, Any]) -> Iterator[str]:
    for path, operations in paths.items():
        for method, operation in operations.items():
            names = [each["name"] for each in operation.get("parameters", [])]
            names += [f"body: {kind}" for kind in operation.get("requestBody", {}).get("content", {})]
            cells = (f"{method.upper()} {path}", operation.get("description", ""), ", ".join(names))
            yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
