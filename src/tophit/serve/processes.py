"""Several processes behind one port: one may write, the others read, follow it, and pass changes on to it.

The process that starts them answers nobody. It starts those again that die, and stops all of them.
"""

import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path

from tophit.errors import TophitError
from tophit.serve.config import Limits, ServeConfig, Shared
from tophit.serve.listening import one_of_several, prepare
from tophit.serve.problems import log, missing_package
from tophit.serve.security import Access, kept_key
from tophit.serve.shared_metrics import retire

_LONGEST_PAUSE = 30.0
"""Seconds before a process is started again that ends whenever it starts."""
_CLOSING_SECONDS = 5.0
_context = multiprocessing.get_context("spawn")


def serve_by_several(
    config: ServeConfig, access: Access, host: str, port: int, started: Callable[[str], None] = print
) -> None:
    """Serve by ``config.workers`` processes until SIGTERM or Ctrl-C; ``started`` is called when all can answer."""
    listener, address = prepare(config, host, port)
    with listener, tempfile.TemporaryDirectory(prefix="tophit-serve-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "uploads").mkdir()
        shared = Shared(Path(folder), 0, kept_key(config.own_folder / "key"))
        bound = host, listener.getsockname()[1]
        Workers(replace(config, shared=shared), access, bound).run(lambda: started(address))


class _Worker:
    """One process: started, started again, stopped."""

    def __init__(self, config: ServeConfig, access: Access, address: tuple[str, int]) -> None:
        self._given = config, access, address
        assert config.shared is not None
        self.shared = config.shared
        self.is_ready, self.failures, self.start_at = False, 0, 0.0
        self.start()

    def start(self) -> None:
        """Start it."""
        self.told, tell = _context.Pipe(duplex=False)
        self.process = _context.Process(target=_work, args=(*self._given, tell), daemon=True)
        self.process.start()
        tell.close()
        self.is_ready, self.start_at = False, 0.0

    def hear(self) -> str:
        """Take its message that it is ready; return what went wrong, if anything."""
        try:
            said = self.told.recv()
        except EOFError:
            self.process.join()
            return f"A process of the server ended with code {self.process.exitcode} while it started."
        if not said:
            self.is_ready, self.failures = True, 0
        return said

    def bury(self) -> None:
        """Keep what a process that died has counted, and plan when to start it again."""
        log.error("process %d ended with code %s; it is started again", self.shared.number, self.process.exitcode)
        self.told.close()
        self.process.join()
        self.failures += not self.is_ready
        self.start_at = time.monotonic() + (min(_LONGEST_PAUSE, 2.0**self.failures) if self.failures else 0.0)
        retire(self.shared.folder, self.shared.number)

    def signal(self, number: int) -> None:
        """Pass a signal on."""
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, number)


class Workers:
    """All processes of a server; the first may write."""

    def __init__(self, config: ServeConfig, access: Access, address: tuple[str, int]) -> None:
        assert config.shared is not None
        limits = config.limits
        self._seconds_to_end = limits.notice_seconds + limits.drain_seconds + _CLOSING_SECONDS
        self._workers: list[_Worker] = []
        for number in range(config.workers):
            shared = replace(config.shared, number=number)
            own = replace(
                config, writable=config.writable and number == 0, shared=shared, limits=share_of(limits, config.workers)
            )
            self._workers.append(_Worker(own, access, address))

    def run(self, started: Callable[[], None]) -> None:
        """Look after them until asked to stop; ``started`` is called once, when all can answer."""
        number = signal.SIGTERM
        with _signals() as heard:
            try:
                number = self._start_all(heard)
                if not number:
                    started()
                    number = self._look_after(heard)
            finally:
                self._stop(number, heard)

    def _start_all(self, heard: socket.socket) -> int:
        """Wait until all are ready; return the signal that asks to stop before that, 0 for none."""
        while waiting := [each for each in self._workers if not each.is_ready]:
            for event in wait([heard, *(each.told for each in waiting)]):
                if event is heard:
                    return heard.recv(1)[0]
            for each in waiting:
                if each.told.poll() and (trouble := each.hear()):
                    raise TophitError(trouble)
        return 0

    def _look_after(self, heard: socket.socket) -> int:
        """Start those again that die, until a signal arrives; return it."""
        while True:
            for each in self._workers:
                if not each.start_at and not each.process.is_alive():
                    each.bury()
                if each.start_at and each.start_at <= time.monotonic():
                    each.start()
                if not each.is_ready and not each.start_at and each.told.poll() and (trouble := each.hear()):
                    log.error("%s", trouble)
            alive = [each for each in self._workers if not each.start_at]
            events = [heard, *(each.process.sentinel for each in alive)]
            events += [each.told for each in alive if not each.is_ready]
            pauses = [each.start_at - time.monotonic() for each in self._workers if each.start_at]
            if heard in wait(events, max(0.0, min(pauses)) if pauses else None):
                return heard.recv(1)[0]

    def _stop(self, number: int, heard: socket.socket) -> None:
        """Let all finish their requests. The one that writes ends last: others may still pass changes on to it."""
        for each in self._workers:
            each.signal(number if each.is_ready else signal.SIGTERM)  # which ends one that starts, without a word
        self._await_end(self._workers[1:], heard)
        self._workers[0].signal(signal.SIGTERM)
        self._await_end(self._workers[:1], heard)

    def _await_end(self, workers: Sequence[_Worker], heard: socket.socket) -> None:
        deadline = time.monotonic() + self._seconds_to_end
        while alive := [each for each in workers if each.process.is_alive()]:
            left = deadline - time.monotonic()
            if left <= 0:
                for each in alive:
                    log.error("process %d does not stop; it is killed", each.shared.number)
                    each.process.kill()
                    each.process.join()
            elif heard in wait([heard, *(each.process.sentinel for each in alive)], left):
                again = heard.recv(1)[0]
                for each in alive:
                    each.signal(again)


def share_of(limits: Limits, workers: int) -> Limits:
    """Return the limits of one of several processes: what all together may hold is divided among them."""
    divided = {
        name: max(1, getattr(limits, name) // workers) for name in ("connections", "client_connections", "unread_bytes")
    }
    return replace(limits, **divided)


def _work(config: ServeConfig, access: Access, address: tuple[str, int], tell: Connection) -> None:
    """Be one of the processes until asked to stop, or until the one that started them is gone."""
    patience = config.limits.notice_seconds + config.limits.drain_seconds

    def follow() -> None:
        first = multiprocessing.parent_process()
        assert first is not None
        wait([first.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(patience)  # others may still pass changes on
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until the server handles it; Ctrl-C is told to all of them
    try:
        from tophit.serve.server import run

        with one_of_several(address) as listener:
            run(config, access, listener, lambda: tell.send(""))
    except ImportError as error:
        tell.send(str(missing_package(error)))
    except TophitError as error:
        tell.send(str(error))


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yield a socket from which the numbers of signals that ask to stop can be read."""
    hear, tell = socket.socketpair()
    tell.setblocking(False)
    before = signal.set_wakeup_fd(tell.fileno())
    kept = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield hear
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in kept.items():
            signal.signal(number, handler)
        hear.close()
        tell.close()
