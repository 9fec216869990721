"""What every request passes on its way in and out: hosts, tokens, size, time, headers and counts. Plain ASGI."""

import asyncio
import contextvars
import json
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI

from tophit.serve.config import Limits
from tophit.serve.metrics import Metrics
from tophit.serve.problems import Problem, problem_of, too_busy
from tophit.serve.security import Access, check_needs, need_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_stages: contextvars.ContextVar[dict[str, float]] = contextvars.ContextVar("stages")


def stages() -> dict[str, float]:
    """Return the seconds that the current request has spent on decode, embed and search."""
    return _stages.get()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Add the time of a block to a stage of the current request."""
    spent, start = _stages.get(), time.perf_counter()
    try:
        yield
    finally:
        spent[name] += time.perf_counter() - start


class Guard:
    """Wraps the application: checks requests, adds headers to answers, turns problems into JSON of one sentence.

    Every route must declare what it needs (see :func:`tophit.serve.security.needs`).
    """

    def __init__(
        self,
        app: FastAPI,
        limits: Limits,
        access: Access,
        metrics: Metrics,
        headers: list[tuple[bytes, bytes]],
        identity: Callable[[], tuple[str, str]],
    ) -> None:
        check_needs(app.routes)
        self._app, self._limits, self._access, self._metrics = app, limits, access, metrics
        self._headers = headers
        self._identity = identity
        self.working = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        spent = {"decode": 0.0, "embed": 0.0, "search": 0.0}
        _stages.set(spent)
        outgoing = _Outgoing(send, self._headers, self._identity, spent)
        try:
            await self._answer(scope, receive, outgoing)
        except Exception as error:
            problem = problem_of(error)
            if outgoing.status:  # too late for another answer
                raise
            await send_problem(outgoing, problem)
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if route != "other" else "other"
        self._metrics.request(method, route, outgoing.status, time.perf_counter() - start)
        for name, seconds in spent.items():
            if seconds:
                self._metrics.stage(name, seconds)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        self._access.check_host(headers)
        need = need_of(self._app.routes, scope["method"], scope["path"])
        self._access.check(need.scope, headers)
        counted = _counted(receive, headers, self._limits)
        heavy = not need.light
        if heavy and self.working >= self._limits.queue:
            raise too_busy()
        self.working += heavy
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                await self._app(scope, counted, send)
        except TimeoutError:
            raise Problem(
                503, f"This took longer than {self._limits.request_seconds:g} seconds.", {"Retry-After": "5"}
            ) from None
        finally:
            self.working -= heavy


async def send_problem(send: Send, problem: Problem) -> None:
    """Answer with a problem."""
    body = json.dumps({"error": problem.sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(key.lower().encode(), value.encode()) for key, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Outgoing:
    """Adds the headers to an answer and remembers its status."""

    def __init__(
        self,
        send: Send,
        headers: list[tuple[bytes, bytes]],
        identity: Callable[[], tuple[str, str]],
        spent: dict[str, float],
    ) -> None:
        self._send, self._headers, self._identity, self._spent = send, headers, identity, spent
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            model, version = self._identity()
            times = ", ".join(f"{name};dur={1000 * seconds:.2f}" for name, seconds in self._spent.items())
            own = {key for key, _ in message.get("headers", ())}
            message["headers"] = [
                *message.get("headers", ()),
                *self._headers,
                (b"x-tophit-model", model.encode()),
                (b"x-tophit-index", version.encode()),
                (b"server-timing", times.encode()),
                *(() if b"cache-control" in own else ((b"cache-control", b"no-store"),)),
            ]
        await self._send(message)


def _counted(receive: Receive, headers: dict[str, str], limits: Limits) -> Receive:
    """Return a receive that stops at the limit, by the header if there is one, else by what arrives."""
    is_form = headers.get("content-type", "").lower().startswith("multipart/form-data")
    most = limits.body_bytes if is_form else limits.json_bytes
    stated = headers.get("content-length", "0")
    if not stated.isdecimal():
        raise Problem(400, "Content-Length is not a number.")
    too_large = Problem(413, f"The body is larger than {most:,} bytes.", {"Connection": "close"})
    if int(stated) > most:
        raise too_large
    arrived = 0

    async def counted() -> Message:
        nonlocal arrived
        message = await receive()
        arrived += len(message.get("body", b""))
        if arrived > most:
            raise too_large
        return message

    return counted
