"""The server that is attacked, on 127.0.0.1, and plain connections to it."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import torch
from PIL import Image

from tophit.data.manifest import ImageRow
from tophit.models import build_embedder
from tophit.search.catalogue import build_catalogue

ADMIN = "an-admin-token-of-the-attack-of-32-bytes"
ATTACKER = "127.0.0.2"
"""Another address of this machine, so that the attacker is another client than those who ask politely."""
DIM = 64


def make_index(folder: Path, count: int, same: int = 0) -> list[str]:
    """Write an index of random vectors, the last ``same`` of them equal, and return its ids."""
    chance = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    rows = []
    for number in range(8):
        path = folder / "images" / f"{number}.png"
        Image.fromarray(chance.integers(0, 255, (64, 64, 3), np.uint8)).save(path)
        rows.append(ImageRow(path, f"label {number}"))
    torch.manual_seed(0)
    catalogue, _ = build_catalogue(build_embedder("small", "random", dim=DIM, size=32), rows, folder / "index")
    ids = [f"item {number:06}" for number in range(count)]
    with catalogue:
        vectors = chance.normal(size=(count, DIM))
        vectors[count - same :] = 1
        catalogue.index.upsert(ids, vectors, [{"label": f"label {n % 100}", "number": n} for n in range(count)])
        catalogue.index.compact()
    return ids


class Target:
    """``tophit serve`` in a process of its own; anyone may read, and writing needs a token."""

    def __init__(self, folder: Path, *options: str, index: Path | None = None) -> None:
        (folder / "tokens").write_text(f"admin {ADMIN}\n")
        self.log = folder / "server.log"
        command = ["serve", str(index or folder / "index"), "--token-file", str(folder / "tokens"), "--port", "0"]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tophit.cli", *command, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "300"},
            )
        assert self.process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        assert found is not None, self.log.read_text()
        self.port = int(found.group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def client(self, address: str = "127.0.0.1", **options: Any) -> httpx.Client:
        """Return a client that comes from an address."""
        transport = httpx.HTTPTransport(local_address=address)
        return httpx.Client(base_url=self.url, timeout=60, transport=transport, **options)

    def connect(self, sent: bytes = b"", buffer: int = 0) -> socket.socket:
        """Return a connection from the attacker's address that has sent something."""
        made = socket.socket()
        if buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        made.settimeout(30)
        made.bind((ATTACKER, 0))
        made.connect(("127.0.0.1", self.port))
        with suppress(OSError):
            made.sendall(sent)
        return made

    def health(self) -> tuple[int, float]:
        """Return the status and the seconds of a request to /health, as a polite client sees them."""
        start = time.perf_counter()
        try:
            status = httpx.get(f"{self.url}/health", timeout=60).status_code
        except httpx.HTTPError:
            status = 0
        return status, time.perf_counter() - start

    def memory(self) -> int:
        """Resident MiB of the server's own process."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))

    def processor_seconds(self) -> float:
        """Return the processor time that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def decoders(self) -> list[int]:
        """Return the process numbers of its decoders."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(each) for each in children if b"decode_worker" in Path(f"/proc/{each}/cmdline").read_bytes()]

    def stop(self, seconds: float = 60) -> int | None:
        """Stop it and return its exit code; None if it did not stop in time."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.process.kill()
            self.process.wait()


def is_closed(connection: socket.socket) -> bool:
    """Return whether the other side has closed a connection, reading what it said."""
    connection.setblocking(False)
    try:
        while connection.recv(1 << 20):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
