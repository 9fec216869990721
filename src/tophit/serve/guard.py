"""What every request passes on its way in and out: hosts, tokens, size, time, headers and counts. Plain ASGI."""

import asyncio
import contextvars
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute

from tophit.serve.config import Limits
from tophit.serve.forwarding import CLIENT_HEADER
from tophit.serve.metrics import Metrics
from tophit.serve.problems import Problem, problem_of, stopping, too_busy
from tophit.serve.rates import Rates
from tophit.serve.security import Access, Need, Token, check_needs, fixed_needs, need_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_NOT_KEPT = (b"cache-control", b"no-store")
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
        forward: App | None = None,
        rates: Rates | None = None,
    ) -> None:
        check_needs(app.routes)
        self._needs = fixed_needs(app.routes)
        self._direct = _direct_endpoints(app.routes)
        self._forward = forward
        self._app, self._limits, self._access, self._metrics = app, limits, access, metrics
        self._headers = headers
        self._identity = identity
        self._rates = rates or Rates()
        self.working = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        spent = {"decode": 0.0, "embed": 0.0, "search": 0.0}
        _stages.set(spent)
        outgoing = _Outgoing(send, self._headers, spent)
        try:
            await self._answer(scope, receive, outgoing)
        except asyncio.CancelledError:  # only a server that stops cancels requests
            await _instead(outgoing, stopping())
        except Exception as error:
            await _instead(outgoing, problem_of(error))
        route = getattr(scope.get("route"), "path", "other")
        method = scope["method"] if route != "other" else "other"
        self._metrics.request(method, route, outgoing.status, time.perf_counter() - start)
        for name, seconds in spent.items():
            if seconds:
                self._metrics.stage(name, seconds)

    async def _answer(self, scope: Scope, receive: Receive, outgoing: "_Outgoing") -> None:
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        self._access.check_host(headers)
        asked = (scope["method"], scope["path"])
        need = self._needs.get(asked) or need_of(self._app.routes, *asked)
        token = self._admit(need, scope, headers)
        if token is not None or self._access.reading_is_open:  # who may not read does not learn what is served
            outgoing.identity = self._identity
        place = _Place(self, counts=not need.light)
        outgoing.started = place.leave  # what is left is to write the answer
        if scope["method"] in ("GET", "HEAD"):
            place.take()
        else:
            place.check()
        counted = _counted(receive, headers, self._limits, place.take)
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                if self._forward is not None and (need.scope == "admin" or need.by_first):
                    await self._forward(scope, counted, outgoing)
                elif (direct := self._direct.get(asked)) is not None:
                    scope.update(app=self._app, route=direct)
                    response = await direct.endpoint(Request(scope, counted))
                    await response(scope, counted, outgoing)
                else:
                    await self._app(scope, counted, outgoing)
        except TimeoutError:
            raise Problem(
                503, f"This took longer than {self._limits.request_seconds:g} seconds.", {"Retry-After": "5"}
            ) from None
        finally:
            place.leave()

    def _admit(self, need: Need, scope: Scope, headers: dict[str, str]) -> Token | None:
        """Return the token of a request that may go on, and note who it is; refuse one of too many as well."""
        client = scope["client"][0] if scope.get("client") else headers.get(CLIENT_HEADER, "")
        token = None
        try:
            token = self._access.check(need.scope, headers)
        finally:  # those who guess tokens are counted too; what another process passes on has been counted there
            if need.scope != "public" and scope.get("client"):
                rate = token.rate if token is not None and token.rate is not None else self._limits.rate
                self._rates.take(token.name if token is not None else f"address {client}", rate)
        scope["tophit_caller"] = Caller(token.name if token is not None else "anyone", client)
        return token


@dataclass(frozen=True)
class Caller:
    """Who makes a request: the name of the token, and the address."""

    name: str
    client: str


def caller_of(request: Request) -> Caller:
    """Return who makes a request."""
    return request.scope["tophit_caller"]


def _direct_endpoints(routes: Iterable[Any]) -> dict[tuple[str, str], Any]:
    """Return the routes that read their body themselves, by method and path.

    The framework has nothing to do for them: its way to them and back takes longer than a search.
    """
    return {
        (method, route.path): route
        for route in routes
        if isinstance(route, APIRoute) and list(signature(route.endpoint).parameters) == ["request"]
        for method in route.methods or ()
        if method != "GET"
    }


class _Place:
    """A request's place among those that are worked on; while its body arrives it has none, so slow ones cost none."""

    def __init__(self, guard: Guard, counts: bool) -> None:
        self._guard = guard
        self._counts = counts
        self._held = False

    def check(self) -> None:
        """Raise if all places are taken."""
        if self._counts and not self._held and self._guard.working >= self._guard._limits.queue:
            raise too_busy()

    def take(self) -> None:
        """Take a place, if there is one."""
        self.check()
        if self._counts and not self._held:
            self._guard.working += 1
            self._held = True

    def leave(self) -> None:
        """Make the place free, once."""
        if self._held:
            self._guard.working -= 1
            self._held = False


async def _instead(outgoing: "_Outgoing", problem: Problem) -> None:
    """Answer with a problem; where an answer has begun, it can only be broken off."""
    if not outgoing.status:
        await send_problem(outgoing, problem)
    elif not outgoing.complete:
        raise RuntimeError(f"An answer was broken off: {problem.sentence}")


async def send_problem(send: Send, problem: Problem) -> None:
    """Answer with a problem."""
    body = json.dumps({"error": problem.sentence}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(key.lower().encode(), value.encode()) for key, value in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Outgoing:
    """Adds the headers to an answer and remembers its status."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]], spent: dict[str, float]) -> None:
        self._send, self._headers, self._spent = send, headers, spent
        self.identity: Callable[[], tuple[str, str]] | None = None
        self.started: Callable[[], None] = lambda: None
        self.status = 0
        self.complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.started()
            model, version = self.identity() if self.identity is not None else ("", "")
            names = [(b"x-tophit-model", model.encode()), (b"x-tophit-index", version.encode())] if model else []
            times = ", ".join(f"{name};dur={1000 * seconds:.2f}" for name, seconds in self._spent.items())
            own = message.get("headers", ())
            kept = () if any(key == b"cache-control" for key, _ in own) else (_NOT_KEPT,)
            message["headers"] = [*own, *self._headers, *names, (b"server-timing", times.encode()), *kept]
        else:
            self.complete = not message.get("more_body", False)
        await self._send(message)


def _counted(receive: Receive, headers: dict[str, str], limits: Limits, arrived_all: Callable[[], None]) -> Receive:
    """Return a receive that stops at the limit, by the header if there is one, else by what arrives."""
    is_form = headers.get("content-type", "").lower().startswith("multipart/form-data")
    most = limits.body_bytes if is_form else limits.json_bytes
    stated = headers.get("content-length", "0")
    if not stated.isdecimal():
        raise Problem(400, "Content-Length is not a number.")
    if int(stated) > most:
        raise _too_large(most)
    arrived = 0

    async def counted() -> Message:
        nonlocal arrived
        message = await receive()
        arrived += len(message.get("body", b""))
        if arrived > most:
            raise _too_large(most)
        if not message.get("more_body", False):
            arrived_all()
        return message

    return counted


def _too_large(most: int) -> Problem:
    return Problem(413, f"The body is larger than {most:,} bytes.", {"Connection": "close"})
