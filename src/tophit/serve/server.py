"""Running a server until it is asked to stop."""

import asyncio
import gc
import os
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

from tophit.errors import TophitError, UsageError
from tophit.serve.app import make_app
from tophit.serve.config import ServeConfig
from tophit.serve.library import Library
from tophit.serve.processes import Readers, remove_shared, shared_by
from tophit.serve.protocol import protocol_with
from tophit.serve.security import Access
from tophit.serve.served_model import VIEW_THREAD

_OTHER_FILES = 256
"""Open files that are no connections: the index, the decoders."""
_SWITCH_SECONDS = 0.0005


class GracefulServer(uvicorn.Server):
    """Asked to stop, it reports that it is not ready, stops listening, finishes open requests, and exits with 0."""

    def __init__(
        self,
        config: uvicorn.Config,
        library: Library,
        notice_seconds: float,
        ready: Callable[[], None],
        readers: Readers | None = None,
    ) -> None:
        super().__init__(config)
        self._readers = readers
        self._library = library
        self._notice = notice_seconds
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, listen, and report when requests can be answered."""
        await super().startup([])  # the application only: a TLS handshake needs a limit of its own
        if not self.started:
            return
        more: dict[str, Any] = {"ssl_handshake_timeout": self._library.limits.header_seconds} if self.config.ssl else {}
        for each in sockets or []:
            self.servers.append(
                await asyncio.get_running_loop().create_server(
                    self._protocol, sock=each, ssl=self.config.ssl, backlog=self.config.backlog, **more
                )
            )
        shared = self._library.config.shared
        if shared is not None and shared.number == 0:  # from the readers
            path = str(shared.socket)
            self.servers.append(await asyncio.get_running_loop().create_unix_server(self._protocol, path))
        self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Look after the other processes once a second."""
        if self._readers is not None and counter % 10 == 9 and not self._library.stopping:
            self._readers.look_after()
        return await super().on_tick(counter)

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
        if self._readers is not None:
            self._readers.stop()
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
    _allow_open_files(config.limits.connections + _OTHER_FILES)
    _check_tls(config)
    listener = _listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"{'https' if config.certificate else 'http'}://{shown}:{listener.getsockname()[1]}/"
    if config.workers > 1:
        config = shared_by(config)
    try:
        run(config, access, listener, lambda: started(address))
    finally:
        listener.close()
        remove_shared(config)
    if any(thread.name == VIEW_THREAD for thread in threading.enumerate()):
        sys.stdout.flush()
        os._exit(0)  # a map that is being drawn can't be interrupted; everything else is finished and closed


def run(
    config: ServeConfig, access: Access, listener: socket.socket, started: Callable[[], None] = lambda: None
) -> None:
    """Be one process of a server; the first of several starts the others."""
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
    is_first = config.shared is not None and config.shared.number == 0
    readers = Readers(run, config, access, listener) if is_first else None
    server = GracefulServer(settings, library, config.limits.notice_seconds, started, readers)
    try:
        server.run(sockets=[listener])
    finally:
        if readers is not None:
            readers.stop()
            readers.join(config.limits.drain_seconds + config.limits.notice_seconds + 5)
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


def _allow_open_files(count: int) -> None:
    """Raise the number of files that this process may open, as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise UsageError(
            f"This needs {count} open files, the system allows {hard} (ulimit -n): lower it with "
            f"--limit connections={max(1, hard - _OTHER_FILES)}."
        )
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _check_tls(config: ServeConfig) -> None:
    """Raise if there is a certificate without a key, or one of them can't be used."""
    if (config.certificate is None) != (config.key is None):
        raise UsageError("TLS needs both --certificate and --key.")
    if config.certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.certificate, config.key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--certificate {config.certificate} and --key {config.key} can't be used: {error}.") from None


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
