"""A small served index, its second model, and clients of it."""

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from tophit.serve.config import Limits
    from tophit.serve.security import Access

ADMIN = "an-admin-token-of-more-than-32-bytes"
READ = "a-token-to-read-of-more-than-32-bytes"


@dataclass(frozen=True)
class Place:
    """Two indexes of the same 48 pictures by two models, and the folder of the pictures."""

    index: Path
    other: Path
    images: Path


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Place:
    import torch

    from conftest import draw_picture
    from tophit.data.manifest import ImageRow
    from tophit.models import build_embedder
    from tophit.search.catalogue import build_catalogue

    folder = tmp_path_factory.mktemp("served")
    rows = []
    for kind in range(8):
        (folder / "images" / f"class {kind}").mkdir(parents=True)
        for number in range(6):
            path = folder / "images" / f"class {kind}" / f"{number}.png"
            draw_picture(kind, number, side=96).save(path)
            rows.append(
                ImageRow(path, f"class {kind}", metadata={"price": str(kind * 10 + number), "number": f"n{number}"})
            )
    for seed, name in enumerate(("index", "other")):
        torch.manual_seed(seed)
        build_catalogue(build_embedder("small", "random", dim=16, size=32), rows, folder / name)[0].close()
    return Place(folder / "index", folder / "other", folder / "images")


@pytest.fixture
def served_copy(served: Place, tmp_path: Path) -> Place:
    """A copy that a test may write to."""
    shutil.copytree(served.index, tmp_path / "index")
    return Place(tmp_path / "index", served.other, served.images)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# who may\nread {READ}\nadmin {ADMIN}\n")
    return path


def client_of(
    place: Place, access: "Access | None" = None, limits: "Limits | None" = None, **config: object
) -> "TestClient":
    """A client in this process; use it in a with statement, which starts and ends the application."""
    from starlette.testclient import TestClient

    from tophit.serve.app import make_app
    from tophit.serve.config import Limits, ServeConfig
    from tophit.serve.library import Library
    from tophit.serve.security import make_access

    library = Library(ServeConfig(place.index, limits=limits or Limits(), **config))  # type: ignore[arg-type]
    app = make_app(library, access or make_access("127.0.0.1", None))
    client = TestClient(app, base_url="http://localhost:8000", raise_server_exceptions=False)
    client.library = library  # type: ignore[attr-defined]
    return client


@pytest.fixture(scope="module")
def client(served: Place) -> "Iterator[TestClient]":
    with client_of(served, against=served.other) as made:
        yield made


@pytest.fixture
def admin(served_copy: Place, tokens: Path) -> "Iterator[TestClient]":
    """A client that may write, of an index of its own."""
    from tophit.serve.security import make_access

    with client_of(served_copy, make_access("127.0.0.1", tokens), writable=True) as made:
        made.headers["authorization"] = f"Bearer {ADMIN}"
        yield made


class Server:
    """``tophit serve`` in a process of its own."""

    def __init__(self, *arguments: object, certificate: Path | None = None) -> None:
        import httpx2 as httpx

        self.context = ssl.create_default_context(cafile=certificate)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tophit.cli", "serve", *map(str, arguments), "--port", str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/ready", verify=self.context).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        self.process.kill()
        said = self.process.stdout.read() if self.process.stdout else ""
        self.stop()
        raise RuntimeError(said)

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(40)
        finally:
            self.process.kill()
            if self.process.stdout is not None:
                self.process.stdout.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    started: list[Server] = []

    def start(*arguments: object, **options: Any) -> Server:
        started.append(Server(*arguments, **options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    import io

    out = io.BytesIO()
    image.save(out, kind, **options)  # type: ignore[arg-type]
    return out.getvalue()
