"""Several processes behind one port: the first may write, the others read, follow it, and pass changes on to it."""

import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tophit.serve.config import ServeConfig, Shared
from tophit.serve.problems import log
from tophit.serve.security import Access

Run = Callable[[ServeConfig, Access, socket.socket], None]


class Readers:
    """The further processes of a server: started, started again if one dies, and stopped."""

    def __init__(self, run: Run, config: ServeConfig, access: Access, listener: socket.socket) -> None:
        assert config.shared is not None
        self._run, self._access, self._listener = run, access, listener
        self._configs = [
            replace(config, writable=False, shared=replace(config.shared, number=number))
            for number in range(1, config.workers)
        ]
        self._spawn = multiprocessing.get_context("spawn")
        self._processes = [self._start(each) for each in self._configs]

    def look_after(self) -> None:
        """Start those again that died."""
        for place, process in enumerate(self._processes):
            if not process.is_alive():
                log.error("reader %d ended with code %s; it is started again", place + 1, process.exitcode)
                self._processes[place] = self._start(self._configs[place])

    def stop(self) -> None:
        """Ask them to finish their requests and end."""
        for process in self._processes:
            process.terminate()

    def join(self, seconds: float) -> None:
        """Wait for their end, and end those that take longer."""
        for process in self._processes:
            process.join(seconds)
            if process.is_alive():
                process.kill()
                process.join()

    def _start(self, config: ServeConfig) -> BaseProcess:
        process = self._spawn.Process(target=_read, args=(self._run, config, self._access, self._listener), daemon=True)
        process.start()
        return process


def _read(run: Run, config: ServeConfig, access: Access, listener: socket.socket) -> None:
    """Be a reader until asked to stop, or until the first process is gone."""
    first = multiprocessing.parent_process()
    assert first is not None

    def follow() -> None:
        wait([first.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    run(config, access, listener)


def shared_by(config: ServeConfig) -> ServeConfig:
    """Return the configuration of the first of several processes, with a folder that only they can use."""
    folder = Path(tempfile.mkdtemp(prefix="tophit-serve-"))
    (folder / "uploads").mkdir()
    return replace(config, shared=Shared(folder, 0))


def remove_shared(config: ServeConfig) -> None:
    """Remove what the processes shared."""
    if config.shared is not None and config.shared.number == 0:
        shutil.rmtree(config.shared.folder, ignore_errors=True)
