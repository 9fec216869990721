"""The bodies of requests: JSON, or a form of files with the JSON in one of its fields."""

from typing import Any

from pydantic import BaseModel
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tophit.serve.limits import Limits
from tophit.serve.problems import Problem


async def read_body(request: Request, limits: Limits, field: str) -> tuple[bytes, list[bytes]]:
    """Return the JSON and the files of a request; the JSON of a form is in its field of that name, ``{}`` if missing.

    File names and types that a client gives are not looked at.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return await request.body(), []
    if kind != "multipart/form-data":
        raise Problem(415, "Send application/json, or multipart/form-data with files.")
    try:
        async with request.form(max_files=limits.files, max_fields=4, max_part_size=limits.json_bytes) as form:
            text, files = b"{}", []
            for name, value in form.multi_items():
                if isinstance(value, UploadFile):
                    if name != "files":
                        raise Problem(422, f"Files go into the field 'files', not '{name}'.")
                    files.append(await value.read())
                elif name == field:
                    text = value.encode(errors="replace")
                else:
                    raise Problem(422, f"The form has the fields 'files' and '{field}', not '{name}'.")
    except HTTPException as error:
        raise Problem(413 if "Too many" in error.detail else 400, f"The form can't be read: {error.detail}") from None
    return text, files


def body_schema(kind: type[BaseModel], field: str | None, examples: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a body for OpenAPI: JSON, and with ``field`` a form with files as well."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    content: dict[str, Any] = {"application/json": {"schema": schema, "examples": examples}}
    if field is not None:
        properties = {
            "files": {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1},
            field: {"type": "string", "description": f"JSON as in {kind.__name__}.", "example": "{}"},
        }
        form = {"type": "object", "properties": properties, "required": ["files"]}
        content["multipart/form-data"] = {"schema": form}
    return {"requestBody": {"required": True, "content": content}}
