"""Running a server until it is asked to stop."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

from tophit.errors import TophitError
from tophit.serve.app import make_app
from tophit.serve.config import ServeConfig
from tophit.serve.library import Library
from tophit.serve.listening import prepare
from tophit.serve.protocol import protocol_with
from tophit.serve.security import Access
from tophit.serve.served_model import VIEW_THREAD

_SWITCH_SECONDS = 0.0005


class GracefulServer(uvicorn.Server):
    """Asked to stop, it reports that it is not ready, stops listening, finishes open requests, and exits with 0."""

    def __init__(
        self,
        config: uvicorn.Config,
        library: Library,
        notice_seconds: float,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._library = library
        self._notice = notice_seconds
        self._ready = ready
        self._public: list[asyncio.Server] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, listen, and report when requests can be answered."""
        await super().startup([])  # the application only: a TLS handshake needs a limit of its own
        if not self.started:
            return
        more: dict[str, Any] = {"ssl_handshake_timeout": self._library.limits.header_seconds} if self.config.ssl else {}
        self._public = [
            await asyncio.get_running_loop().create_server(
                self._protocol, sock=each, ssl=self.config.ssl, backlog=self.config.backlog, **more
            )
            for each in sockets or []
        ]
        self.servers += self._public
        shared = self._library.config.shared
        if shared is not None and shared.number == 0:  # from the readers
            path = str(shared.socket)
            self.servers.append(await asyncio.get_running_loop().create_unix_server(self._protocol, path))
        self._ready()

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGTERM and Ctrl-C here, and do not raise them again at the end: a requested stop is no failure."""
        kept = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._library.stopping or number == signal.SIGINT:
            self._library.stopping = True
            self.should_exit = True
            return
        self._library.stopping = True
        asyncio.get_running_loop().call_later(self._notice, self._stop_listening)

    def _stop_listening(self) -> None:
        shared = self._library.config.shared
        if shared is None or shared.number:
            self.should_exit = True
            return
        for each in self._public:  # the others may still pass changes on; a second signal says that they have ended
            each.close()


def serve(
    config: ServeConfig,
    access: Access,
    host: str = "127.0.0.1",
    port: int = 8000,
    started: Callable[[str], None] = print,
) -> None:
    """Serve until SIGTERM or Ctrl-C; ``started`` is called with the address. Port 0 means any free one."""
    listener, address = prepare(config, host, port)
    with listener:
        run(config, access, listener, lambda: started(address))
    if any(thread.name == VIEW_THREAD for thread in threading.enumerate()):
        sys.stdout.flush()
        os._exit(0)  # a map that is being drawn can't be interrupted; everything else is finished and closed


def run(
    config: ServeConfig, access: Access, listener: socket.socket, started: Callable[[], None] = lambda: None
) -> None:
    """Be a server, or one process of it."""
    library = Library(config)
    _answer_evenly()
    settings = uvicorn.Config(
        make_app(library, access),
        http=protocol_with(config.limits, library.metrics),  # type: ignore[arg-type]
        ws="none",  # a connection that changes its protocol would escape the limits
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(config.limits.drain_seconds)),
        timeout_keep_alive=30,
        lifespan="on",
        ssl_certfile=config.certificate,
        ssl_keyfile=config.key,
    )
    server = GracefulServer(settings, library, config.limits.notice_seconds, started)
    server.run(sockets=[listener])
    if not server.started:
        raise TophitError("The server did not start; the lines above say why.")


def _answer_evenly() -> None:
    """Keep one request from holding up the others.

    A full collection of garbage goes over everything that libraries made when they were imported, and nobody is
    answered for 0.15 s meanwhile: what is there now is left out of it. And a thread that computes lets the event loop
    go on after half a millisecond, not after five.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(_SWITCH_SECONDS)
