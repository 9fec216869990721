"""Load: 200 clients that search and two that write, in turns without and with attackers beside them."""

import asyncio
import json
import multiprocessing
import os
import random
import re
import time
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attack.attacks import HALF, POST
from benchmarks.attack.target import ADMIN, ATTACKER, DIM, Target
from tophit.search.catalogue import open_catalogue

CLIENTS = 200
RATE = 60.0
"""Searches a second of all polite clients together."""
WRITERS = 2
SLOW_HEADERS = 300
LAZY_READERS = 4
_WARM_UP = 10
"""Seconds before anything is counted: all clients connect."""


@dataclass
class Tally:
    """What polite clients saw in the turns of one kind: seconds of good answers, and what else came."""

    seconds: list[float] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)

    def other(self, what: str) -> None:
        """Count an answer that was not 200."""
        self.others[what] = self.others.get(what, 0) + 1

    def plain(self) -> dict[str, Any]:
        """Return median and p99 in ms, and the counts."""
        median, p99 = (round(1e3 * float(np.quantile(self.seconds, q)), 1) for q in (0.5, 0.99))
        return {"requests": len(self.seconds), "median ms": median, "p99 ms": p99, "not answered by 200": self.others}


def run_load(folder: Path, ids: list[str], minutes: float) -> dict[str, Any]:
    """Run three quiet turns and two attacked ones between them; return what was seen, and what was lost."""
    target, spawn = Target(folder), multiprocessing.get_context("spawn")
    attacked, over, ready = spawn.Event(), spawn.Event(), spawn.Event()
    attacker = spawn.Process(target=attack, args=(target.port, attacked, over, ready), daemon=True)
    load = _Load(target, ids, attacked)
    try:
        attacker.start()
        ready.wait(60)
        memory = asyncio.run(load.run(minutes))
    finally:
        over.set()
        attacker.join(30)
        code = target.stop()
    quiet, beside = load.tallies[False].plain(), load.tallies[True].plain()
    with open_catalogue(folder / "index") as catalogue:
        names = list(load.written)
        found = catalogue.index.get(names)
        lost = [name for name, item in zip(names, found, strict=True) if item is None]
        wrong = [item.id for item in found if item is not None and item.metadata["n"] < load.written[item.id]]
        problems = catalogue.index.verify()
    return {
        "minutes with attackers": minutes,
        "searches, quiet": quiet,
        "searches, attacked": beside,
        "turns": load.turns,
        "p99 attacked / quiet": round(beside["p99 ms"] / quiet["p99 ms"], 2),
        "writes acknowledged": load.acknowledged,
        "items lost": len(lost) + len(wrong),
        "verify": problems,
        "memory MiB": memory,
        "exit code": code,
    }


class _Load:
    def __init__(self, target: Target, ids: list[str], attacked: Event) -> None:
        self.target, self.ids, self.attacked = target, ids, attacked
        self.tallies = {False: Tally(), True: Tally()}
        self.written: dict[str, int] = {}
        self.acknowledged = 0
        self.turns: list[dict[str, Any]] = []
        self._over = False

    async def run(self, minutes: float) -> list[int]:
        """Let everybody work through the turns; return the server's memory at the end of each part of them."""
        tasks = [asyncio.create_task(self._search(number)) for number in range(CLIENTS)]
        tasks += [asyncio.create_task(self._write(number)) for number in range(WRITERS)]
        memory = []
        await asyncio.sleep(_WARM_UP)
        self.tallies = {False: Tally(), True: Tally()}
        quiet = 60 * min(1.0, minutes / 3)
        for turn in range(5):
            with_attackers = turn % 2 == 1
            seconds = 30 * minutes if with_attackers else quiet
            (self.attacked.set if with_attackers else self.attacked.clear)()
            before = len(self.tallies[with_attackers].seconds)
            for _ in range(4):
                await asyncio.sleep(seconds / 4)
                memory.append(self.target.memory())
            some = Tally(self.tallies[with_attackers].seconds[before:]).plain()
            self.turns.append({"attacked": with_attackers, "p99 ms": some["p99 ms"], "load": os.getloadavg()[0]})
        self._over = True
        await asyncio.gather(*tasks)
        return memory

    async def _search(self, number: int) -> None:
        chance = random.Random(number)
        connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        await asyncio.sleep(chance.random() * CLIENTS / RATE)
        while not self._over:
            query: dict[str, Any] = {"ids": [chance.choice(self.ids)], "k": 10}
            if chance.random() < 0.2:
                query["where"] = {"number": {"lt": chance.randrange(1, len(self.ids))}}
            attacked, start = self.attacked.is_set(), time.perf_counter()
            if connection is not None and connection[0].at_eof():
                connection = None  # idle for 30 seconds: the server has closed it, as any client must expect
            try:
                connection = connection or await asyncio.open_connection("127.0.0.1", self.target.port)
                status = await self._ask(*connection, "POST /search", json.dumps(query).encode())
            except (OSError, asyncio.IncompleteReadError) as error:
                status, connection = type(error).__name__, None
            if status == "200":
                self.tallies[attacked].seconds.append(time.perf_counter() - start)
            else:
                self.tallies[attacked].other(status)
            await asyncio.sleep(chance.expovariate(RATE / CLIENTS))

    async def _write(self, number: int) -> None:
        chance, count = np.random.default_rng(number), 0
        connection = await asyncio.open_connection("127.0.0.1", self.target.port)
        while not self._over:
            count += 1
            names = [f"new {number} {n}" for n in set(chance.integers(2000, size=20).tolist())]
            items = [{"id": n, "vector": chance.normal(size=DIM).tolist(), "metadata": {"n": count}} for n in names]
            try:
                status = await self._ask(*connection, "POST /items", json.dumps({"items": items}).encode())
            except (OSError, asyncio.IncompleteReadError) as error:
                status = type(error).__name__
                connection = await asyncio.open_connection("127.0.0.1", self.target.port)
            if status == "200":
                self.acknowledged += 1
                self.written |= dict.fromkeys(names, count)
            else:
                self.tallies[self.attacked.is_set()].other(f"write: {status}")
            await asyncio.sleep(0.5)

    @staticmethod
    async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str, body: bytes) -> str:
        head = f"{what} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json"
        writer.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        length = re.search(rb"(?i)content-length: (\d+)", answer)
        await reader.readexactly(int(length.group(1)) if length else 0)
        return answer[9:12].decode()


def attack(port: int, attacked: Event, over: Event, ready: Event) -> None:
    """Attack whenever it is time to, in a process of its own."""
    ready.set()
    asyncio.run(_attack(port, attacked, over))


async def _attack(port: int, attacked: Event, over: Event) -> None:
    while not over.is_set():
        if not attacked.is_set():
            await asyncio.sleep(0.1)
            continue
        kinds = [_repeat(_half_a_header, port) for _ in range(SLOW_HEADERS)]
        kinds += [_repeat(_read_nothing, port) for _ in range(LAZY_READERS)]
        kinds += [_repeat(_send_nonsense, port)]
        tasks = [asyncio.create_task(each) for each in kinds]
        while attacked.is_set() and not over.is_set():
            await asyncio.sleep(0.1)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _repeat(way: Any, port: int) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0), limit=4096)
        except OSError:
            await asyncio.sleep(0.5)
            continue
        try:
            await way(reader, writer)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            await asyncio.sleep(0.2)
        finally:
            writer.transport.abort()


async def _half_a_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HALF)
    while not reader.at_eof():
        await asyncio.sleep(1)
        writer.write(b"x")
        await writer.drain()


async def _read_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ask for 2,000 results twenty times over one connection, and read none."""
    body = json.dumps({"vectors": np.eye(DIM)[:2].tolist(), "k": 1000}).encode()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(20):
        writer.write(POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await asyncio.sleep(2)
        if writer.transport.is_closing():
            return


async def _send_nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send one wrong request and read its answer; about ten a second."""
    values = json.dumps({"ids": ["item 000001"], "where": {"number": list(range(30_000))}}).encode()
    kinds = [
        b"\x16\x03\x01nonsense\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        POST + b"Content-Length: 7\r\n\r\n{'ids':",
        POST + b"Content-Length: %d\r\n\r\n" % len(values) + values,
        POST + b"Content-Length: 99000000\r\n\r\n",
        b"DELETE /items HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer guess\r\nContent-Length: 0\r\n\r\n",
        b"GET /thumbnails/AAAA HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ]
    writer.write(random.choice(kinds))
    await asyncio.wait_for(reader.read(1000), 5)
    await asyncio.sleep(0.1)
