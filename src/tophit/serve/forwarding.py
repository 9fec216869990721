"""A reader passes changes on to the process that may write, and asks it for what is made only once.

They use a socket that only they can open.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from tophit.serve.problems import Problem

CLIENT_HEADER = "x-tophit-client"
"""Whom a reader asks for; believed only on the processes' own socket."""
_KEPT_HEADERS = (b"content-type", b"content-length", b"retry-after", b"www-authenticate")
_PASSED_HEADERS = (b"host", b"origin", b"authorization", b"cookie", b"content-type")


class Forward:
    """An ASGI application that lets the first process answer, and calls ``done`` after each change."""

    def __init__(self, path: Path, done: Callable[[], Awaitable[Any]]) -> None:
        self._path = path
        self._done = done

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Pass a request on, and its answer back."""
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._path))
        except OSError:
            raise Problem(503, "The process that writes is not there; try again.", {"Retry-After": "5"}) from None
        try:
            writer.write(_head(scope, len(body)) + body)
            await writer.drain()
            answer = await reader.read()
        except OSError:
            answer = b""
        finally:
            writer.close()
        head, _, content = answer.partition(b"\r\n\r\n")
        if not head:
            raise Problem(
                503, "Whether this was written is unknown: the process that writes has ended; ask for the item."
            )
        status, headers = _read_head(head)
        if scope["method"] not in ("GET", "HEAD"):
            await self._done()
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})


def _head(scope: MutableMapping[str, Any], length: int) -> bytes:
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    lines = [scope["method"].encode() + b" " + scope["raw_path"] + query + b" HTTP/1.1"]
    lines += [name + b": " + value for name, value in scope["headers"] if name in _PASSED_HEADERS]
    client = scope["client"][0] if scope.get("client") else ""
    lines += [f"{CLIENT_HEADER}: {client}".encode(), b"content-length: %d" % length, b"connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _read_head(head: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    first, *lines = head.split(b"\r\n")
    pairs = [line.split(b": ", 1) for line in lines]
    return int(first.split()[1]), [(name, value) for name, value in pairs if name.lower() in _KEPT_HEADERS]
