"""A long load on a server: searches by id and by image beside writes, and how many images share a forward pass."""

import asyncio
import random
import re
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx2 as httpx
import numpy as np

from benchmarks.serve.side_by_side import CLIENTS
from benchmarks.serve.target import TOKEN, Server


def batches(server: Server) -> tuple[int, int]:
    """Return how many images went through how many forward passes so far."""
    text = httpx.get(f"{server.url}/metrics").text
    images = re.search(r"tophit_batch_images_sum (\S+)", text)
    passes = re.search(r"tophit_batch_images_count (\S+)", text)
    assert images is not None
    assert passes is not None
    return round(float(images.group(1))), round(float(passes.group(1)))


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
