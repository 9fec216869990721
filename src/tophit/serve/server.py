"""Running a server until it is asked to stop."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from tophit.errors import TophitError
from tophit.serve.app import make_app
from tophit.serve.config import ServeConfig
from tophit.serve.library import Library
from tophit.serve.security import Access


class GracefulServer(uvicorn.Server):
    """Asked to stop, it reports that it is not ready, stops listening, finishes open requests, and exits with 0."""

    def __init__(
        self, config: uvicorn.Config, library: Library, notice_seconds: float, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._library = library
        self._notice = notice_seconds
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report when requests can be answered."""
        await super().startup(sockets)
        if self.started:
            self._ready()

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
        self.should_exit = True


def serve(
    config: ServeConfig,
    access: Access,
    host: str = "127.0.0.1",
    port: int = 8000,
    started: Callable[[str], None] = print,
) -> None:
    """Serve until SIGTERM or Ctrl-C; ``started`` is called with the address. Port 0 means any free one."""
    listener = _listen(host, port)
    library = Library(config)
    settings = uvicorn.Config(
        make_app(library, access),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=round(config.limits.drain_seconds),
        timeout_keep_alive=30,
        limit_concurrency=1024,
        lifespan="on",
    )
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listener.getsockname()[1]}/"
    server = GracefulServer(settings, library, config.limits.notice_seconds, lambda: started(address))
    try:
        server.run(sockets=[listener])
    finally:
        listener.close()
    if not server.started:
        raise TophitError("The server did not start; the lines above say why.")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise TophitError(f"Can't listen on {host}:{port}: {error.strerror}. Choose another --port.") from None
    return listener
