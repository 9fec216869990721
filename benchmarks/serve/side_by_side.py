"""The engine alone and HTTP side by side: searches by id of 16 clients."""

import asyncio
import json
import random
import re
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.serve.target import TOKEN, Server
from tophit.search.catalogue import Catalogue

CLIENTS = 16


@dataclass(frozen=True)
class Measured:
    """Of one round: milliseconds of a request, and requests a second."""

    median: float
    p99: float
    speed: float

    @classmethod
    def of(cls, times: Sequence[float], seconds: float) -> "Measured":
        """Sum up the seconds of requests that were answered in a time."""
        return cls(1e3 * statistics.median(times), 1e3 * float(np.quantile(times, 0.99)), len(times) / seconds)

    @classmethod
    def middle(cls, rounds: "Sequence[Measured]") -> "Measured":
        """Return the median of each number."""
        return cls(*(statistics.median(getattr(each, name) for each in rounds) for name in ("median", "p99", "speed")))


def engine(catalogue: Catalogue, ids: Sequence[str], seconds: float, rate: float) -> Measured:
    """Let 16 threads search in this process, together at a rate; 0 means as fast as they can."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        chance = random.Random(number)
        while time.perf_counter() < end:
            if rate:
                time.sleep(chance.expovariate(rate / CLIENTS))
            start = time.perf_counter()
            catalogue.search_ids([chance.choice(ids)], 10)
            times.append(time.perf_counter() - start)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Measured.of(times, seconds)


class Connection:
    """A connection that is kept open, as little client as can be: what is measured is the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: Server) -> None:
        self.reader, self.writer = reader, writer
        host = server.url.removeprefix("http://")
        token = f"Authorization: Bearer {TOKEN}\r\n" if server.writable else ""
        self._head = f"Host: {host}\r\n{token}Content-Type: application/json\r\nContent-Length: "

    @classmethod
    async def open(cls, server: Server) -> "Connection":
        """Connect to a server."""
        host = server.url.removeprefix("http://")
        return cls(*await asyncio.open_connection(*host.split(":")), server)

    async def search(self, name: str) -> None:
        """Search by an id and read the answer to its end."""
        status, content = await self.ask("POST /search", json.dumps({"ids": [name], "k": 10}).encode())
        assert status == 200, content

    async def ask(self, what: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send a request and return its status and answer."""
        self.writer.write(f"{what} HTTP/1.1\r\n{self._head}{len(body)}\r\n\r\n".encode() + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        assert length is not None, head
        return int(head[9:12]), await self.reader.readexactly(int(length.group(1)))


async def http(server: Server, ids: Sequence[str], seconds: float, rate: float) -> Measured:
    """Let 16 connections search by a server, together at a rate; 0 means as fast as they get answers."""
    times: list[float] = []
    connections = [await Connection.open(server) for _ in range(CLIENTS)]
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        chance = random.Random(number)
        while time.perf_counter() < end:
            if rate:
                await asyncio.sleep(chance.expovariate(rate / CLIENTS))
            start = time.perf_counter()
            await connections[number].search(chance.choice(ids))
            times.append(time.perf_counter() - start)

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    for each in connections:
        each.writer.close()
    return Measured.of(times, seconds)


def side_by_side(
    catalogue: Catalogue, servers: dict[str, Server], ids: Sequence[str], rounds: int, seconds: float, rate: float
) -> dict[tuple[str, str], list[Measured]]:
    """Measure the engine and each server in turn, at a rate and at full speed; return the rounds of each."""
    ways: dict[str, Callable[[float, float], Measured]] = {
        "engine alone": lambda seconds, pace: engine(catalogue, ids, seconds, pace)
    }
    for title, server in servers.items():
        ways[title] = lambda seconds, pace, server=server: asyncio.run(http(server, ids, seconds, pace))
    found: dict[tuple[str, str], list[Measured]] = {}
    for number in range(rounds + 1):
        for paces, pace in (("steady", rate), ("full speed", 0.0)):
            for title, way in ways.items():
                measured = way(seconds if number else 1.0, pace)
                if number:  # the first round only warms up
                    found.setdefault((title, paces), []).append(measured)
    return found


async def seconds_to_follow(server: Server, dim: int, writes: int) -> list[float]:
    """Write items by one process and return after how many seconds another one shows each, from the answer on."""
    lines: dict[int, Connection] = {}
    while len(lines) < server.workers:
        line = await Connection.open(server)
        lines[json.loads((await line.ask("GET /about"))[1])["process"]] = line
    chance, found = np.random.default_rng(2), []
    for number in range(writes):
        item = {"id": f"followed {number}", "vector": chance.normal(size=dim).tolist()}
        status, said = await lines[number % server.workers].ask("POST /items", json.dumps({"items": [item]}).encode())
        assert status == 200, said
        start = time.perf_counter()
        for other in lines.values():
            while (await other.ask(f"GET /items?id=followed%20{number}"))[0] != 200:
                pass
        found.append(time.perf_counter() - start)
    return found
