"""How answers are written: JSON that is not checked again, and pictures."""

import json
from typing import Any

import orjson
from fastapi.responses import Response

from tophit.cancelling import check_cancelled
from tophit.serve.library import Library
from tophit.serve.served_model import SMALL_SEARCH


def json_answer(content: dict[str, Any]) -> Response:
    """Return JSON without validating it again: answers consist of plain values."""
    return _answer(_json(content))


async def search_answer(library: Library, content: dict[str, Any]) -> Response:
    """Return the answer to a search."""
    if sum(len(each["results"]) for each in content["queries"]) <= SMALL_SEARCH:
        return json_answer(content)
    return await large_answer(library, content)


async def large_answer(library: Library, content: dict[str, Any]) -> Response:
    """Write an answer in a thread: many results take long to write, and the other requests would wait."""
    return await library.first.call(_in_parts, content)


def picture_answer(webp: bytes) -> Response:
    """Return a picture, which a browser may keep for an hour."""
    return Response(webp, media_type="image/webp", headers={"Cache-Control": "private, max-age=3600"})


def _answer(text: bytes) -> Response:
    return Response(text, media_type="application/json")


def _in_parts(content: dict[str, Any]) -> Response:
    members = (
        _json(name) + b":" + (_listed(each) if isinstance(each, list) else _json(each))
        for name, each in content.items()
    )
    return _answer(b"{" + b",".join(members) + b"}")


def _listed(values: list[Any]) -> bytes:
    """Return a list as JSON, made part by part: other threads wait while a part is made, and it can be given up."""
    parts = []
    for value in values:
        check_cancelled()
        parts.append(_json(value))
    return b"[" + b",".join(parts) + b"]"


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # numbers beyond 64 bits, and half of a pair of surrogates
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode(errors="replace")
