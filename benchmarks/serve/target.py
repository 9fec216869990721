"""What is measured: an index, and servers of it."""

import re
import subprocess
import sys
import time
from pathlib import Path

import httpx2 as httpx
import numpy as np
import torch
from PIL import Image

from tophit.data.manifest import ImageRow
from tophit.models import build_embedder
from tophit.search.catalogue import build_catalogue
from tophit.search.versions import IndexOptions

TOKEN = "a-token-for-the-benchmark-of-32-bytes"
_BATCH = 2000
_RATE_LIMIT = 1_000_000
"""The clients share an address, and more than the default are let in."""


def make_index(folder: Path, count: int, dim: int, options: IndexOptions | None = None) -> list[str]:
    """Write a catalogue of clustered vectors, whose items share a few pictures, and return its ids."""
    random_ = np.random.default_rng(0)
    (folder / "images").mkdir()
    rows = []
    for number in range(8):
        path = folder / "images" / f"{number}.png"
        Image.fromarray(random_.integers(0, 255, (200, 200, 3), np.uint8)).save(path)
        rows.append(ImageRow(path, f"label {number}"))
    torch.manual_seed(0)
    embedder = build_embedder("efficientnet-lite0", dim=dim)
    catalogue, _ = build_catalogue(embedder, rows, folder / "index", options=options)
    with catalogue:
        centres = random_.normal(size=(count // 100 + 1, dim))
        ids = [f"item {number:07}" for number in range(count)]
        for start in range(0, count, _BATCH):
            some = ids[start : start + _BATCH]
            kinds = random_.integers(len(centres), size=len(some))
            vectors = centres[kinds] + 0.5 * random_.normal(size=(len(some), dim))
            metadata = [
                {"label": f"label {kind}", "price": int(kind), "path": str(rows[kind % len(rows)].path.absolute())}
                for kind in kinds
            ]
            catalogue.index.upsert(some, vectors, metadata)
        catalogue.index.compact()
    return ids


class Server:
    """``tophit serve`` in a process of its own, or in several."""

    def __init__(self, folder: Path, workers: int = 1, writable: bool = False) -> None:
        self.workers, self.writable = workers, writable
        (folder / "tokens").write_text(f"admin {TOKEN}\n")
        command = ["serve", folder / "index", "--port", 0, "--limit", f"rate={_RATE_LIMIT}", "--workers", workers]
        command += ["--token-file", folder / "tokens"] if writable else []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tophit.cli", *map(str, command)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        assert found is not None
        self.url = found.group().rstrip("/")
        while True:
            try:
                httpx.get(f"{self.url}/ready").raise_for_status()
                return
            except httpx.HTTPError:
                time.sleep(0.1)

    def memory(self) -> float:
        """Resident MiB of the server's own process."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    def stop(self) -> int:
        """Stop it and return its exit code."""
        self.process.terminate()
        return self.process.wait(60)
