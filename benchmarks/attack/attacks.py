"""The attacks, each with a limit on numbers and time. Each returns how often it tried and what it saw."""

import io
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
from PIL import Image

from benchmarks.attack.target import ADMIN, DIM, Target, is_closed

HALF = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
POST = b"POST /search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
WRITER = {"authorization": f"Bearer {ADMIN}"}


@dataclass(frozen=True)
class Seen:
    """How often something was tried, whether the promise held, and the numbers that say so."""

    tried: str
    held: bool
    words: str


@contextmanager
def watched(target: Target) -> Iterator[list[tuple[int, float]]]:
    """Ask for /health all the time, from another address than the attacker's; yield the answers."""
    answers: list[tuple[int, float]] = []
    done = threading.Event()

    def ask() -> None:
        answers.append(target.health())
        while not done.wait(0.05):
            answers.append(target.health())

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        done.set()
        thread.join()


def _health(answers: list[tuple[int, float]]) -> tuple[bool, str]:
    wrong = [status for status, _ in answers if status != 200]
    slowest = max(seconds for _, seconds in answers)
    words = f"/health: {len(answers) - len(wrong)} of {len(answers)} were 200, the slowest took {slowest:.2f} s"
    return not wrong and slowest < 5, words


def slow_headers(target: Target) -> Seen:
    """Send half a header on 1,100 connections."""
    with watched(target) as answers:
        many = [target.connect(HALF) for _ in range(1100)]
        end = time.monotonic() + 20
        while (left := sum(not is_closed(each) for each in many)) and time.monotonic() < end:
            time.sleep(0.5)
    for each in many:
        each.close()
    fine, words = _health(answers)
    return Seen("1,100 connections", fine and left == 0, f"{words}; {left} still open after 20 s")


def endless_headers(target: Target) -> Seen:
    """Send headers of 64 MB on four connections."""
    before, accepted = target.memory(), []
    with watched(target) as answers:
        for _ in range(4):
            connection, sent = target.connect(HALF), 0
            try:
                while sent < 64_000_000:
                    sent += connection.send(b"x" * 65_536)
            except OSError:
                pass
            accepted.append(sent)
            connection.close()
    grown = target.memory() - before
    fine, words = _health(answers)
    most = max(accepted) / 1e6
    return Seen("4 of 64 MB", fine and most < 30 and grown < 50, f"{words}; at most {most:.1f} MB sent, +{grown} MiB")


def slow_bodies(target: Target) -> Seen:
    """Send a body that never ends on 100 connections, more than there are places for work."""
    many = [target.connect(POST + b"Content-Length: 1000\r\n\r\n{") for _ in range(100)]
    time.sleep(1)
    with target.client() as client:
        found = [client.post("/search", json={"ids": ["item 000001"]}).status_code for _ in range(20)]
    for each in many:
        each.close()
    return Seen("100 connections", found == [200] * 20, f"{found.count(200)} of 20 polite searches were answered")


def many_values(target: Target) -> Seen:
    """Filter by 30,000 values, and by as many as are allowed."""
    with watched(target) as answers, target.client("127.0.0.2") as client:
        start = time.perf_counter()
        query = {"ids": ["item 000001"], "where": {"number": list(range(30_000))}}
        large = {client.post("/search", json=query).status_code for _ in range(20)}
        query["where"] = {"label": [f"label {n}" for n in range(100)], "number": list(range(900))}
        small = {client.post("/search", json=query).status_code for _ in range(20)}
        seconds = time.perf_counter() - start
    fine, words = _health(answers)
    return Seen(
        "40 requests",
        fine and (large, small) == ({422}, {200}) and seconds < 30,
        f"{words}; {large}, {small} in {seconds:.1f} s",
    )


def abandoned_searches(target: Target) -> Seen:
    """Search for far longer than a request may take; the server is started with request_seconds=2."""
    query = {"vectors": [[1.0] * DIM] * 1024, "k": 40}
    found: list[int] = []

    def ask() -> None:
        with target.client("127.0.0.2") as client:
            found.append(client.post("/search", json=query).status_code)

    with watched(target) as answers:
        asks = [threading.Thread(target=ask) for _ in range(8)]
        for each in asks:
            each.start()
        for each in asks:
            each.join()
        time.sleep(0.3)
        before = target.processor_seconds()
        time.sleep(2)
        after = target.processor_seconds() - before
    fine, words = _health(answers)
    return Seen("8 searches", fine and after < 1, f"{words}; answers {set(found)}; then {after:.2f} processor-s in 2 s")


def lazy_readers(target: Target) -> Seen:
    """Ask for answers of several MB and read none."""
    body = json.dumps({"vectors": (-np.eye(DIM)[:40]).tolist(), "k": 1000}).encode()
    head = POST + b"Content-Length: %d\r\n\r\n" % len(body)
    before, peak = target.memory(), 0
    with watched(target) as answers:
        many = []
        for _ in range(30):
            many.append(target.connect(head + body, buffer=4096))
            peak = max(peak, target.memory())
        end = time.monotonic() + 90  # searches wait their turn, and a connection may idle for half a minute
        while _connections(target) > 3 and time.monotonic() < end:
            time.sleep(0.5)
            peak = max(peak, target.memory())
        left = _connections(target)
    for each in many:
        each.close()
    fine, words = _health(answers)
    grown = f"+{peak - before} MiB at most, +{target.memory() - before} MiB after"
    return Seen("30 of 8 MB", fine and left <= 3, f"{words}; {left} connections open at the end; {grown}")


def _connections(target: Target) -> int:
    lines = httpx.get(f"{target.url}/metrics", timeout=60).text.splitlines()
    return next((round(float(line.split()[1])) for line in lines if line.startswith("tophit_connections ")), 999)


def killed_decoders(target: Target) -> Seen:
    """Kill decoders while pictures are being decoded."""
    data = _picture(400)
    done, killed, found = threading.Event(), 0, []

    def kill() -> None:
        nonlocal killed
        while not done.wait(0.4):
            for number in target.decoders()[:1]:
                os.kill(number, signal.SIGKILL)
                killed += 1

    thread = threading.Thread(target=kill)
    with target.client("127.0.0.2") as client:
        found.append(client.post("/search", files={"files": data}).status_code)
        thread.start()
        found += [client.post("/search", files={"files": data}).status_code for _ in range(60)]
    done.set()
    thread.join()
    blamed = found.count(422)
    return Seen(
        f"{killed} kills", blamed == 0 and 500 not in found, f"{found.count(200)} of 61 answered, {blamed} blamed"
    )


def mutated_pictures(target: Target, count: int = 300) -> Seen:
    """Send pictures with a few bytes changed."""
    chance, data = random.Random(0), _picture(64, "JPEG")
    found = []
    with target.client("127.0.0.2") as client:
        for _ in range(count):
            changed = bytearray(data)
            for _ in range(chance.randint(1, 8)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
            found.append(_asked(client, "POST", "/search", files={"files": bytes(changed)}))
    return _all_json(found, f"{count} pictures")


def odd_requests(target: Target, count: int = 2000) -> Seen:
    """Send odd values in every place, some of them as an admin."""
    chance = random.Random(1)
    odd = [None, True, -1, 0, 2**63, -(2**70), 1e308, "", "x" * 300, "/" * 1024, "é" * 512, "\x00", [], [[]], {}]
    odd += [{"in": [2**64]}, {"lt": None}, "../../etc/passwd", "sealed:AAAA", [0.5] * DIM]
    fields = ("ids", "uploads", "vectors", "box", "like", "unlike", "together", "k", "where", "rerank")
    found = []
    with target.client("127.0.0.2") as client:
        for _ in range(count):
            some = {chance.choice(fields): chance.choice(odd) for _ in range(2)}
            if chance.random() < 0.5:
                some |= {"ids": ["item 000001"], "where": {"number": chance.choice(odd), "label": chance.choice(odd)}}
            item = {"id": chance.choice(odd), "vector": [0.1] * DIM, "metadata": {"x": chance.choice(odd)}}
            method, path, given = chance.choice(
                [
                    ("POST", "/items", {"json": {"items": [item]}, "headers": WRITER}),
                    ("DELETE", "/items", {"json": {"ids": [chance.choice(odd)]}, "headers": WRITER}),
                    ("GET", "/items", {"params": {"id": str(chance.choice(odd))}}),
                    ("POST", "/search", {"json": some}),
                ]
            )
            found.append(_asked(client, method, path, **given))
    return _all_json(found, f"{count} requests")


def _asked(client: httpx.Client, method: str, path: str, **given: Any) -> httpx.Response | None:
    """Return the answer; None if the connection broke instead."""
    try:
        return client.request(method, path, **given)
    except httpx.TransportError:
        return None


def _all_json(asked: list[httpx.Response | None], tried: str) -> Seen:
    found = [each for each in asked if each is not None]
    statuses = sorted({each.status_code for each in found})
    plain = sum(each.headers["content-type"] != "application/json" for each in found)
    failed = sum(each.status_code == 500 for each in found)
    broken = len(asked) - len(found)
    words = f"statuses {statuses}; {failed} were 500, {plain} were no JSON, {broken} connections broke"
    return Seen(tried, not (failed or plain or broken), words)


def guessed_tokens(target: Target, count: int = 500) -> Seen:
    """Write with wrong tokens."""
    with target.client("127.0.0.2") as client:
        body = {"ids": ["item 000001"]}
        found = {
            client.request("DELETE", "/items", json=body, headers={"authorization": f"Bearer {n:040}"}).status_code
            for n in range(count)
        }
    return Seen(f"{count} guesses", found <= {401, 429}, f"statuses {sorted(found)}")


def stop_in_the_middle(target: Target) -> Seen:
    """Send SIGTERM while searches run that would take minutes; started with drain_seconds=2 and notice_seconds=0.5."""
    query = {"vectors": [[1.0] * DIM] * 1024, "k": 40}
    asks = [threading.Thread(target=_quietly, args=(target, query)) for _ in range(4)]
    for each in asks:
        each.start()
    time.sleep(1)
    start = time.monotonic()
    code = target.stop(60)
    seconds = time.monotonic() - start
    for each in asks:
        each.join()
    return Seen("4 searches", code == 0 and seconds < 10, f"exit code {code} after {seconds:.1f} s")


def _quietly(target: Target, query: dict) -> None:
    try:
        with target.client("127.0.0.2") as client:
            client.post("/search", json=query)
    except httpx.HTTPError:
        pass


def upload_and_restart(folder: Path, start: Callable[[], Target]) -> Seen:
    """Post a picture, and start the server again."""
    shown = []
    for number in range(3):
        target = start()
        with target.client() as client:
            new = {"items": json.dumps({"items": [{"id": f"new {number}"}]})}
            client.post("/items", files={"files": _picture(64)}, data=new, headers=WRITER)
            found = client.post("/search", json={"ids": ["0.png"], "k": 1000})
            shown.append((found.status_code, str(folder) in found.text))
        target.stop()
    fine = shown == [(200, False)] * 3
    return Seen(
        "3 restarts",
        fine,
        f"short id found {sum(status == 200 for status, _ in shown)} times, paths shown "
        f"{sum(paths for _, paths in shown)} times",
    )


def _picture(side: int, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (side, side, 3), np.uint8)
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()
