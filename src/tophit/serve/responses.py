"""How answers are written: JSON that is not checked again, and pictures."""

import json
from typing import Any

from fastapi.responses import Response

from tophit.cancelling import check_cancelled
from tophit.serve.library import Library


def json_answer(content: dict[str, Any]) -> Response:
    """Return JSON without validating it again: answers consist of plain values."""
    members = (
        f"{_json(name)}:{_listed(each) if isinstance(each, list) else _json(each)}" for name, each in content.items()
    )
    return Response(f"{{{','.join(members)}}}".encode(errors="replace"), media_type="application/json")


async def large_answer(library: Library, content: dict[str, Any]) -> Response:
    """Do the same in a thread: many results take long to write, and the other requests would wait."""
    return await library.first.call(json_answer, content)


def picture_answer(webp: bytes) -> Response:
    """Return a picture, which a browser may keep for an hour."""
    return Response(webp, media_type="image/webp", headers={"Cache-Control": "private, max-age=3600"})


def _listed(values: list[Any]) -> str:
    """Return a list as JSON, made part by part: other threads wait while a part is made, and it can be given up."""
    parts = []
    for value in values:
        check_cancelled()
        parts.append(_json(value))
    return f"[{','.join(parts)}]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
