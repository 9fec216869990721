"""The HTTP application: its routes, each a few lines around :mod:`tophit.serve.library` and its neighbours.

Every route declares with ``@needs`` who may use it.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from tophit import __version__
from tophit.errors import TophitError
from tophit.serve import answers
from tophit.serve.api_page import api_page
from tophit.serve.forwarding import Forward
from tophit.serve.guard import Guard, caller_of
from tophit.serve.item_changes import delete_items, upsert_items
from tophit.serve.library import Library
from tophit.serve.metrics import CONTENT_TYPE
from tophit.serve.problems import Problem, problem_of, stopping
from tophit.serve.rates import Rates
from tophit.serve.requests import (
    DeleteRequest,
    NameRequest,
    SearchRequest,
    SessionRequest,
    UpsertRequest,
    body_schema,
    parse,
    read_body,
)
from tophit.serve.responses import json_answer, large_answer, picture_answer, search_answer
from tophit.serve.searching import compare, name, search
from tophit.serve.security import COOKIE, Access, needs, security_headers
from tophit.serve.served_pictures import SIZES

PAGE = Path(__file__).parent / "page"
MapName = Annotated[str | None, Query(alias="map", max_length=64, description="The name of the map, from /map.")]
_REQUESTS: tuple[type[BaseModel], ...] = (SearchRequest, NameRequest, UpsertRequest, DeleteRequest, SessionRequest)
_BY_ID = {"by an item": {"value": {"ids": ["cats/1.jpg"], "k": 5}}}
_STEERED = {"steered and filtered": {"value": {"like": ["a"], "unlike": ["b"], "where": {"label": ["cat", "dog"]}}}}
_EXAMPLES = {
    "search": {**_BY_ID, **_STEERED, "by a box": {"value": {"ids": ["a"], "box": [0.1, 0.2, 0.6, 0.9]}}},
    "name": {"an item": {"value": {"ids": ["cats/1.jpg"], "cut_off": 0.8}}},
    "upsert": {"vectors": {"value": {"items": [{"id": "a", "vector": [0.6, 0.8], "metadata": {"label": "cat"}}]}}},
    "delete": {"two items": {"value": {"ids": ["a", "b"]}}},
    "session": {"a token": {"value": {"token": "0123456789abcdef0123456789abcdef"}}},
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": answers.Error, "description": words}
    for status, words in {
        400: "The request can't be read.",
        401: "A token is needed.",
        403: "Not allowed.",
        404: "Not found.",
        409: "The map has been updated.",
        413: "Too large.",
        415: "Neither JSON nor a form.",
        421: "Meant for another host.",
        422: "Wrong, or more than a limit allows.",
        429: "Too many requests; see Retry-After.",
        503: "Busy, or stopping; see Retry-After.",
        507: "The disk is full; nothing was written.",
    }.items()
}


def make_app(library: Library, access: Access) -> Guard:
    """Return the application with its guard."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await library.start()
        yield
        await library.close()

    app = FastAPI(
        title="Tophit",
        version=__version__,
        description="Search images by images. Every answer contains the model's id, the version of the index and the "
        "time spent on decode, embed and search, in its body and as headers.",
        docs_url=None,  # they would load scripts from another host
        redoc_url=None,
        openapi_url=None,  # a route of our own, which says who may read it
        lifespan=lifespan,
        redirect_slashes=False,
        responses=_ERRORS,
    )
    _add_error_answers(app)
    _add_search(app, library)
    _add_items(app, library)
    _add_views(app, library)
    _add_operations(app, library)
    _add_page(app, access)
    inline = re.findall(r"<script[^>]*>(.+?)</script>", (PAGE / "index.html").read_text(encoding="utf-8"), re.DOTALL)
    shared = library.config.shared
    forward = Forward(shared.socket, library.first.refresh) if shared is not None and shared.number else None
    rates = Rates(path=shared.rates if shared is not None else None)
    headers = security_headers(inline)
    return Guard(app, library.limits, access, library.metrics, headers, library.identity, forward, rates)


def _add_search(app: FastAPI, library: Library) -> None:
    body = body_schema(SearchRequest, "query", _EXAMPLES["search"])

    @app.post("/search", responses={200: {"model": answers.SearchAnswer}}, openapi_extra=body)
    @needs("read", changes_nothing=True)
    async def search_(request: Request) -> Response:
        """Find the items nearest to pictures, items, vectors or examples."""
        text, files = await read_body(request, library.limits, "query")
        return await search_answer(library, await search(library, parse(SearchRequest, text), files))

    naming = body_schema(NameRequest, "query", _EXAMPLES["name"])

    @app.post("/name", responses={200: {"model": answers.NameAnswer}}, openapi_extra=naming)
    @needs("read", changes_nothing=True)
    async def name_(request: Request) -> Response:
        """Name what pictures show by the labels of the nearest items, with the chance of the name and the evidence."""
        text, files = await read_body(request, library.limits, "query")
        return await large_answer(library, await name(library, parse(NameRequest, text), files))

    @app.post("/compare", responses={200: {"model": answers.CompareAnswer}}, openapi_extra=body)
    @needs("read", changes_nothing=True)
    async def compare_(request: Request) -> Response:
        """Search with both models and compare the ranks; needs a server started with --against."""
        text, files = await read_body(request, library.limits, "query")
        return await large_answer(library, await compare(library, parse(SearchRequest, text), files))


def _add_items(app: FastAPI, library: Library) -> None:
    @app.get("/items", responses={200: {"model": answers.ItemsAnswer}})
    @needs("read")
    async def items(
        ids: Annotated[list[str], Query(alias="id", max_length=100, description="None: a sample of the index.")] = [],  # noqa: B006
    ) -> Response:
        """Return items by their ids, or a sample of the index."""
        if ids:
            found = await library.items(ids)
        else:
            some = await library.first.call(library.first.index.get, library.survey.sample)
            found = [item for item in some if item is not None]
        plain = [library.plain_item(item.id, item.metadata) for item in found]
        return json_answer({**library.envelope(library.first), "items": plain})

    @app.post(
        "/items",
        responses={200: {"model": answers.UpsertAnswer}},
        openapi_extra=body_schema(UpsertRequest, "items", _EXAMPLES["upsert"]),
    )
    @needs("admin")
    async def upsert(request: Request) -> Response:
        """Add items or replace those of the same id; needs an admin token. When it answers, they are on the disk."""
        text, files = await read_body(request, library.limits, "items")
        written = await upsert_items(library, parse(UpsertRequest, text), files, caller_of(request))
        return json_answer({**library.envelope(library.first), "written": written})

    @app.delete(
        "/items",
        responses={200: {"model": answers.DeleteAnswer}},
        openapi_extra=body_schema(DeleteRequest, None, _EXAMPLES["delete"]),
    )
    @needs("admin")
    async def delete(request: Request) -> Response:
        """Remove items; needs an admin token."""
        text, _ = await read_body(request, library.limits, "items")
        gone = await delete_items(library, parse(DeleteRequest, text), caller_of(request))
        return json_answer({**library.envelope(library.first), "deleted": gone})


def _add_views(app: FastAPI, library: Library) -> None:
    picture: dict[int | str, dict[str, Any]] = {200: {"content": {"image/webp": {}}, "description": "A picture."}}

    @app.get("/thumbnails/{name}", response_class=Response, responses=picture)
    @needs("read")
    async def thumbnail(name: str, size: int = SIZES[1]) -> Response:
        """Return an item's picture, re-encoded; size is 160, 320 or 1024."""
        if size not in SIZES:
            raise Problem(422, f"size is one of {', '.join(map(str, SIZES))}.")
        return picture_answer(await library.thumbnail(name, size))

    @app.get("/uploads/{name}", response_class=Response, responses=picture)
    @needs("read")
    async def upload(name: str) -> Response:
        """Return a picture that was searched with, re-encoded."""
        return picture_answer(library.uploads.get(name).webp)

    @app.get("/about", responses={200: {"model": answers.AboutAnswer}})
    @needs("read", light=True)
    async def about() -> Response:
        """Describe what is served."""
        return json_answer({**library.envelope(library.first), **library.about()})

    @app.get("/map", responses={200: {"model": answers.MapAnswer}})
    @needs("read", by_first=True)
    async def map_() -> Response:
        """Describe the points of the map."""
        made = await library.map()
        state = {"state": "building", "map": "", "count": 0, "labels": [], "method": ""}
        if made is not None:
            facts = {"count": len(made.points), "labels": made.names, "method": made.method}
            state = {"state": "ready", "map": made.name, **facts}
        return json_answer({**library.envelope(library.first), **state})

    binary: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": {}}}}

    @app.get("/map/points", response_class=Response, responses=binary)
    @needs("read", by_first=True)
    async def map_points(name: MapName = None) -> Response:
        """Return the points: float32 x and y of each, then uint16 label numbers, little-endian."""
        made = await library.map(name)
        if made is None:
            raise Problem(503, "The map is not ready yet.", {"Retry-After": "1"})
        return Response(made.binary(), media_type="application/octet-stream")

    @app.get("/map/items", responses={200: {"model": answers.ItemsAnswer}})
    @needs("read", by_first=True)
    async def map_items(
        rows: Annotated[list[int], Query(alias="row", max_length=200)], name: MapName = None
    ) -> Response:
        """Return the items of points, without those deleted since."""
        made = await library.map(name)
        if made is None:
            raise Problem(503, "The map is not ready yet.", {"Retry-After": "1"})
        if any(not 0 <= row < len(made.ids) for row in rows):
            raise Problem(422, f"A row is from 0 to {len(made.ids) - 1}.")
        found = await library.first.call(library.first.index.get, [made.ids[row] for row in rows])
        plain = [library.plain_item(item.id, item.metadata) for item in found if item is not None]
        return json_answer({**library.envelope(library.first), "items": plain})

    @app.get("/worst", responses={200: {"model": answers.WorstAnswer}})
    @needs("read", by_first=True)
    async def worst() -> Response:
        """Return the queries that find wrong items first, and the labels that are confused."""
        return json_answer({**library.envelope(library.first), **await worst_plain(library)})


async def worst_plain(library: Library) -> dict[str, Any]:
    """Return the worst queries as JSON."""
    found = await library.worst()
    if found is None:
        return {"state": "building", "tried": 0, "unseen": False, "metrics": {}, "queries": [], "confusions": []}
    ids = list(dict.fromkeys(name for q in found.queries for name in (q.id, *(each[0] for each in q.results))))
    items = await library.first.call(library.first.index.get, ids)
    plain = {item.id: library.plain_item(item.id, item.metadata) for item in items if item is not None}
    queries = [
        {
            "query": plain[query.id],
            "value": query.value,
            "first_right_rank": query.first_right_rank,
            "results": [
                {**plain[name], "rank": rank, "score": score, "correct": correct}
                for rank, (name, score, correct) in enumerate(query.results, 1)
                if name in plain
            ],
        }
        for query in found.queries
        if query.id in plain
    ]
    confusions = [{"label": a, "taken_for": b, "queries": number} for a, b, number in found.confusions]
    return {
        "state": "ready",
        "tried": found.tried,
        "unseen": found.unseen,
        "metrics": found.metrics,
        "queries": queries,
        "confusions": confusions,
    }


def _add_operations(app: FastAPI, library: Library) -> None:
    @app.get("/health")
    @needs("public")
    async def health() -> dict[str, str]:
        """Report that the process is alive."""
        return {"status": "alive"}

    @app.get("/ready")
    @needs("public")
    async def ready() -> dict[str, str]:
        """Report whether requests are answered; a server that stops, or whose writes fail, is not ready."""
        if library.stopping:
            raise stopping()
        if trouble := library.trouble:
            raise Problem(503, f"Writes fail: {trouble}. Searches are answered.", {"Retry-After": "5"})
        return {"status": "ready"}

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    @needs("read", light=True)
    async def metrics() -> Response:
        """Return counts and times in Prometheus' text format."""
        return Response(library.metrics_text(), media_type=CONTENT_TYPE)

    @app.get("/openapi.json", include_in_schema=False)
    @needs("public")
    async def openapi() -> dict[str, Any]:
        return _described(app)

    @app.get("/docs", include_in_schema=False)
    @needs("public")
    async def docs() -> Response:
        return HTMLResponse(api_page(_described(app)))


def _add_page(app: FastAPI, access: Access) -> None:
    @app.get("/", include_in_schema=False)
    @needs("public")
    async def index() -> Response:
        return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})

    @app.get("/favicon.ico", include_in_schema=False)
    @needs("public")
    async def icon() -> Response:
        return FileResponse(PAGE / "icon.svg", media_type="image/svg+xml")

    @app.post("/session", openapi_extra=body_schema(SessionRequest, None, _EXAMPLES["session"]))
    @needs("public", changes_nothing=True)
    async def session(request: Request) -> dict[str, str]:
        """Let the browser keep a token in a cookie, which is for reading only."""
        token = parse(SessionRequest, await request.body()).token
        if access.find(token) is None:
            raise Problem(401, "This token is not valid.")
        answer = JSONResponse({"status": "welcome"})
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer  # type: ignore[return-value]

    app.mount("/page", needs("public")(StaticFiles(directory=PAGE)))


def _add_error_answers(app: FastAPI) -> None:
    """Answer every error of a route with one sentence of JSON."""

    @app.exception_handler(Problem)
    @app.exception_handler(TophitError)
    @app.exception_handler(Exception)
    async def problem(request: Request, error: Exception) -> Response:
        found = problem_of(error)
        return JSONResponse({"error": found.sentence}, found.status, found.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return JSONResponse({"error": f"{'.'.join(map(str, first['loc']))}: {first['msg']}."}, 422)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        return JSONResponse({"error": f"{error.detail}."}, error.status_code, error.headers)


def _described(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description, with the schemas of the bodies that routes read themselves."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        models = [(each, "validation") for each in _REQUESTS]
        _, more = models_json_schema(models, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
        schema.setdefault("components", {}).setdefault("schemas", {}).update(more["$defs"])
        for path in schema["paths"].values():
            for operation in path.values():
                operation["responses"] = _with_errors(operation["responses"])
        app.openapi_schema = schema
    return app.openapi_schema


def _with_errors(described: dict[str, Any]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    errors = {str(status): {"description": e["description"], "content": content} for status, e in _ERRORS.items()}
    return {**errors, **{status: each for status, each in described.items() if status not in errors}}
