"""What HTTP adds to a search, how image queries share a forward pass, and a long load with writes.

    python -m benchmarks.serve                     # overhead and batching: a minute
    python -m benchmarks.serve --minutes 10        # and the load test

The server is a process of its own on this machine, and so are the clients. The overhead is measured at a steady rate
(16 clients, ``--rate`` requests a second in all): with each client sending as fast as it gets answers, the median
would tell how many requests wait for the processor, not what HTTP costs. That figure is printed too.
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2 as httpx
import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

from tophit.data.manifest import ImageRow
from tophit.models import build_embedder
from tophit.search.catalogue import build_catalogue, open_catalogue

CLIENTS = 16
TOKEN = "a-token-for-the-benchmark-of-32-bytes"


def make_index(folder: Path, count: int, dim: int) -> list[str]:
    """Write a catalogue of clustered vectors, whose items share a few pictures, and return its ids."""
    random_ = np.random.default_rng(0)
    (folder / "images").mkdir()
    rows = []
    for number in range(8):
        path = folder / "images" / f"{number}.png"
        Image.fromarray(random_.integers(0, 255, (200, 200, 3), np.uint8)).save(path)
        rows.append(ImageRow(path, f"label {number}"))
    torch.manual_seed(0)
    catalogue, _ = build_catalogue(build_embedder("efficientnet-lite0", dim=dim), rows, folder / "index")
    with catalogue:
        centres = random_.normal(size=(count // 100 + 1, dim))
        ids = [f"item {number:07}" for number in range(count)]
        for start in range(0, count, 10_000):
            some = ids[start : start + 10_000]
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
    """``tophit serve`` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "tokens").write_text(f"admin {TOKEN}\n")
        command = ["serve", folder / "index", "--token-file", folder / "tokens", "--port", "0"]
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


class Connection:
    """A connection that is kept open, as little client as can be: what is measured is the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self.reader, self.writer = reader, writer
        self._head = f"POST /search HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "

    @classmethod
    async def open(cls, server: Server) -> "Connection":
        """Connect to a server."""
        host = server.url.removeprefix("http://")
        return cls(*await asyncio.open_connection(*host.split(":")), host)

    async def search(self, name: str) -> None:
        """Search by an id and read the answer to its end."""
        body = json.dumps({"ids": [name], "k": 10}).encode()
        self.writer.write(f"{self._head}{len(body)}\r\n\r\n".encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = re.search(rb"(?i)content-length: (\d+)", head)
        assert length is not None
        await self.reader.readexactly(int(length.group(1)))


Call = Callable[[int, str], Awaitable[object]]  # of a client's number and an id


async def steady(call: Call, ids: list[str], seconds: float, rate: float) -> list[float]:
    """Return the seconds of calls that 16 clients make at a rate together; 0 means as fast as they get answers."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        chance = random.Random(number)
        while time.perf_counter() < end:
            if rate:
                await asyncio.sleep(chance.expovariate(rate / CLIENTS))
            start = time.perf_counter()
            await call(number, chance.choice(ids))
            times.append(time.perf_counter() - start)

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return times


async def overhead(server: Server, folder: Path, ids: list[str], seconds: float, rate: float) -> dict[str, list[float]]:
    """Measure the search by id, by the backend alone here and through HTTP: at a steady rate and at full load."""
    from concurrent.futures import ThreadPoolExecutor

    told: dict[str, list[float]] = {}
    loop = asyncio.get_running_loop()
    with open_catalogue(folder / "index") as catalogue, ThreadPoolExecutor(CLIENTS) as threads:
        connections = [await Connection.open(server) for _ in range(CLIENTS)]

        async def by_http(number: int, name: str) -> None:
            await connections[number].search(name)

        async def by_backend(number: int, name: str) -> None:
            await loop.run_in_executor(threads, catalogue.search_ids, [name], 10)

        for title, pace in (("steady", rate), ("full", 0.0)):
            for name, call in (("backend", by_backend), ("http", by_http)):
                await steady(call, ids, 1, pace)
                told[f"{name}, {title}"] = await steady(call, ids, seconds, pace)
        for connection in connections:
            connection.writer.close()
    return told


def batches(server: Server) -> tuple[int, int]:
    """Return how many images went through how many forward passes so far."""
    text = httpx.get(f"{server.url}/metrics").text
    images = re.search(r"tophit_batch_images_sum (\S+)", text)
    passes = re.search(r"tophit_batch_images_count (\S+)", text)
    assert images is not None
    assert passes is not None
    return round(float(images.group(1))), int(passes.group(1))


async def image_queries(server: Server, folder: Path, count: int) -> tuple[float, float]:
    """Send image queries one after the other, then 16 at a time; return images a pass of each."""
    data = (folder / "images" / "0.png").read_bytes()
    found = []
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        for together in (1, CLIENTS):
            before = batches(server)
            for _ in range(count // together):
                await asyncio.gather(*(http.post("/search", files={"files": data}) for _ in range(together)))
            after = batches(server)
            found.append((after[0] - before[0]) / (after[1] - before[1]))
    return found[0], found[1]


def load(server: Server, folder: Path, ids: list[str], dim: int, minutes: float) -> dict[str, object]:
    """Let 16 clients search, by id and by image, while one writes; return errors, times and memory by minute."""
    end = time.perf_counter() + 60 * minutes
    data = (folder / "images" / "0.png").read_bytes()
    times: dict[str, list[float]] = {"by id": [], "by image": [], "upsert": []}
    errors: list[str] = []

    def timed(kind: str, answer: Callable[[], httpx.Response]) -> None:
        start = time.perf_counter()
        try:
            response = answer()
            if response.status_code != 200:
                errors.append(f"{kind}: {response.status_code} {response.text[:80]}")
        except httpx.HTTPError as error:
            errors.append(f"{kind}: {error!r}")
        times[kind].append(time.perf_counter() - start)

    def search(number: int) -> None:
        chance = random.Random(number)
        with httpx.Client(base_url=server.url, timeout=60) as http:
            while time.perf_counter() < end:
                if number == 0:
                    timed("by image", lambda: http.post("/search", files={"files": data}))
                else:
                    timed("by id", lambda: http.post("/search", json={"ids": [chance.choice(ids)], "k": 10}))
                time.sleep(0.05)

    def write() -> None:
        chance = np.random.default_rng(1)
        with httpx.Client(base_url=server.url, timeout=60, headers={"authorization": f"Bearer {TOKEN}"}) as http:
            while time.perf_counter() < end:
                items = [
                    {"id": f"new {n}", "vector": chance.normal(size=dim).tolist()}
                    for n in chance.integers(2000, size=20)
                ]
                timed("upsert", lambda items=items: http.post("/items", json={"items": items}))
                time.sleep(0.2)

    threads = [threading.Thread(target=search, args=(number,)) for number in range(CLIENTS)]
    threads.append(threading.Thread(target=write))
    for thread in threads:
        thread.start()
    memory = []
    while time.perf_counter() < end:
        time.sleep(min(15, max(0.1, end - time.perf_counter())))
        memory.append(round(server.memory()))
    for thread in threads:
        thread.join()
    return {
        "minutes": minutes,
        "requests": {kind: len(each) for kind, each in times.items()},
        "errors": errors[:5],
        "errors in all": len(errors),
        "median ms": {kind: round(1e3 * statistics.median(each), 1) for kind, each in times.items() if each},
        "p99 ms": {kind: round(1e3 * float(np.quantile(each, 0.99)), 1) for kind, each in times.items() if each},
        "memory MiB every 15 s": memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rate", type=float, default=80, help="requests a second of all clients together")
    parser.add_argument("--minutes", type=float, default=0, help="of the load test")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    console = Console()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ids = make_index(folder, arguments.count, arguments.dim)
        server = Server(folder)
        try:
            times = asyncio.run(overhead(server, folder, ids, arguments.seconds, arguments.rate))
            table = Table("search by id, 16 clients", "median ms", "p99 ms", "requests/s")
            for title, each in times.items():
                row = (
                    1e3 * statistics.median(each),
                    1e3 * float(np.quantile(each, 0.99)),
                    len(each) / arguments.seconds,
                )
                table.add_row(title, *(f"{value:.2f}" for value in row))
            console.print(table)
            added = 1e3 * (statistics.median(times["http, steady"]) - statistics.median(times["backend, steady"]))
            console.print(f"HTTP adds {added:.2f} ms at the median at {arguments.rate:g} requests a second.")
            alone, together = asyncio.run(image_queries(server, folder, 64))
            console.print(f"Images a forward pass: {alone:.1f} one after the other, {together:.1f} with 16 at a time.")
            if arguments.minutes:
                console.print_json(json.dumps(load(server, folder, ids, arguments.dim, arguments.minutes)))
        finally:
            console.print(f"Exit code of the server: {server.stop()}")


if __name__ == "__main__":
    main()
