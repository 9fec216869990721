"""HTTP connections with limits that hold before the application sees a request: headers, their time, slow readers."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tophit.serve.config import Limits
from tophit.serve.connections import Connections
from tophit.serve.metrics import Metrics

_MOST_PIPELINED = 16
_STALLED_BYTES = 65_536
"""A client that reads must read this much within ``write_seconds``."""


class _Refused(Exception):
    """A request that is refused before the application sees it."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection.

    - A clock runs while headers arrive: ``header_seconds`` from the connection, or from a further request's first byte.
    - What is not a body (address, headers, chunk sizes, trailers) is at most ``header_bytes`` more than the body.
    - A client that does not read its answer is cut off after ``write_seconds``.
    """

    def __init__(self, limits: Limits, register: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.address = ""
        self._limits = limits
        self._register = register
        self._clock: asyncio.TimerHandle | None = None
        self._write_clock: asyncio.TimerHandle | None = None
        self._headers_size = 0
        """Of the request that arrives now, as parsed."""
        self._overhead = 0
        """Bytes of it that are not its body, as received: a header may be cut into many parts."""
        self._body = 0
        self._arriving = self._in_body = False

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def unread_bytes(self) -> int:
        """What was answered but not read by the client."""
        return self.transport.get_write_buffer_size()

    def cut(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit a connection, or close it."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self._register.admit(self):
            self.transport.abort()
            return
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_clock()
        self._stop_write_clock()
        self._unset_keepalive_if_required()
        self._register.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what arrives, and parse it."""
        if self.transport.is_closing():
            return
        if not self._arriving and self._clock is None:
            self._start_clock()  # the first byte of a further request
        before, self._overhead = self._body, self._overhead + len(data)
        super().data_received(data)
        self._overhead -= max(0, self._body - before)
        if self._overhead > self._limits.header_bytes + self._body:
            self._refuse_headers()

    def on_message_begin(self) -> None:
        """Count from here."""
        super().on_message_begin()
        self._arriving, self._in_body = True, False
        self._headers_size = 0

    def on_url(self, url: bytes) -> None:
        """Take a part of the address."""
        self._count_headers(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer after a body in chunks."""
        self._count_headers(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request to the application."""
        if len(self.pipeline) >= _MOST_PIPELINED:
            raise _Refused("too many requests without reading an answer")
        self._in_body = True
        self._stop_clock()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expect a further request."""
        super().on_message_complete()
        self._arriving = False
        self._overhead = self._body = 0
        self._stop_clock()

    def on_response_complete(self) -> None:
        """Wait for the rest of a body that nobody reads only as long as for headers."""
        super().on_response_complete()
        if self._arriving and not self.transport.is_closing():
            self._start_clock()

    def pause_writing(self) -> None:
        """Start to watch a client that does not read."""
        super().pause_writing()
        self._register.fills(self)
        if self._write_clock is None and not self.transport.is_closing():
            self._watch_reader(self.unread_bytes)

    def resume_writing(self) -> None:
        """Stop watching a client that has read."""
        super().resume_writing()
        self._register.drained(self)
        self._stop_write_clock()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP as every other error is answered."""
        self._refuse(400, "This is not HTTP that the server understands.")

    def _count_headers(self, more: int) -> None:
        self._headers_size += more
        if self._headers_size > self._limits.header_bytes:
            self._refuse_headers()
            raise _Refused("too large headers")

    def _refuse_headers(self) -> None:
        self._refuse(431, f"The headers are larger than {self._limits.header_bytes:,} bytes.")

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer with a sentence and close the connection, unless an answer is on its way."""
        if self.transport.is_closing():
            return
        if not self.is_idle:
            self.transport.abort()
            return
        body = json.dumps({"error": sentence}).encode()
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

    def _start_clock(self) -> None:
        self._stop_clock()
        self._clock = self.loop.call_later(self._limits.header_seconds, self._too_slow)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _too_slow(self) -> None:
        self._clock = None
        if not self.is_idle:
            self._start_clock()  # its answer goes first
        elif self._arriving and not self._in_body:
            self._refuse(408, f"The headers took longer than {self._limits.header_seconds:g} seconds.")
        else:
            self.transport.abort()

    def _watch_reader(self, before: int) -> None:
        self._write_clock = self.loop.call_later(self._limits.write_seconds, self._check_reader, before)

    def _check_reader(self, before: int) -> None:
        """Cut off a client that has read next to nothing since the last look."""
        self._write_clock = None
        left = self.unread_bytes
        if before - left < min(before, _STALLED_BYTES):
            self.cut()
        else:
            self._watch_reader(left)

    def _stop_write_clock(self) -> None:
        if self._write_clock is not None:
            self._write_clock.cancel()
            self._write_clock = None


def protocol_with(limits: Limits, metrics: Metrics) -> Callable[..., LimitedProtocol]:
    """Return what makes the protocol of each connection of one server."""
    register = Connections(limits)
    metrics.count_connections(lambda: len(register))

    def make(**given: Any) -> LimitedProtocol:
        return LimitedProtocol(limits, register, **given)

    return make
