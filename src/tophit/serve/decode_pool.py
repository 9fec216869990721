"""Untrusted images are decoded in separate processes, which are killed when they take too long."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tophit.serve.config import Limits
from tophit.serve.problems import Problem

Result = TypeVar("Result")
FractionBox = tuple[float, float, float, float]
KEPT_SIDE = 1024
"""The long side of a picture that is kept so that a box can be drawn on it."""


@dataclass(frozen=True)
class Decoded:
    """The requested pictures as uint8 (height, width, 3), and the first of them re-encoded (empty if not requested)."""

    pictures: list[np.ndarray]
    webp: bytes


class _Ended(Exception):
    """A process ended in the middle of its work."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code

    def problem(self, name: str) -> Problem:
        """Return what a client is told: who kills a process from outside has nothing against the picture."""
        if self.code == -signal.SIGKILL:
            return Problem(503, f"{name}: decoding was ended by the system twice; try again.", {"Retry-After": "5"})
        return Problem(422, f"{name}: can't be decoded within the memory limit.")


class DecodePool:
    """A few decoding processes, started when first needed."""

    def __init__(self, limits: Limits, least_side: int, workers: int | None = None) -> None:
        self._limits = limits
        self._least_side = least_side
        self._workers = workers or min(4, os.cpu_count() or 1)
        self._idle: list[asyncio.subprocess.Process] = []
        self._places = asyncio.Semaphore(self._workers)

    async def pictures(
        self,
        data: bytes,
        boxes: Sequence[FractionBox | None] = (None,),
        within: Sequence[float] | None = None,
        webp: int = 0,
        name: str = "the image",
    ) -> Decoded:
        """Return the parts of a picture inside boxes, None being all of it; or raise a Problem that names it.

        ``within`` is the part of the picture in use, in pixels; the boxes are fractions of that. ``webp`` is the long
        side of the picture to re-encode.
        """
        least = max(self._least_side, webp) if webp else self._least_side
        job = {"boxes": list(boxes), "within": within, "webp": webp, "raw": True}
        return await self._decode(data, job, least, name)

    async def all_pictures(
        self, files: Sequence[bytes], boxes: Sequence[FractionBox | None] = (None,), name: str = "file"
    ) -> list[Decoded]:
        """Decode the files of a request, each kept as WebP too; too many pixels in all are refused before any is."""
        names = [f"{name} {number}" for number in range(1, len(files) + 1)]
        if len(files) > 1:
            jobs = ({"measure": True} for _ in files)
            sizes = await _all_of(map(self._run, files, jobs, names))
            pixels = sum(head["size"][0] * head["size"][1] for head, _ in sizes)
            if pixels > self._limits.request_pixels:
                most = self._limits.request_pixels
                raise Problem(422, f"{len(files)} files of {pixels:,} pixels in all; at most {most:,} are allowed.")
        return await _all_of(
            self.pictures(data, boxes, webp=KEPT_SIDE, name=each) for data, each in zip(files, names, strict=True)
        )

    async def thumbnail(self, data: bytes, side: int, within: Sequence[float] | None = None) -> bytes:
        """Return a picture re-encoded, its long side at most ``side``."""
        job = {"boxes": [None], "within": within, "webp": side, "raw": False}
        return (await self._decode(data, job, side, "the image")).webp

    async def _decode(self, data: bytes, job: dict[str, Any], least_side: int, name: str) -> Decoded:
        head, parts = await self._run(data, {**job, "least_side": least_side}, name)
        pictures = [
            np.frombuffer(part, np.uint8).reshape(high, wide, 3)
            for part, (wide, high) in zip(parts[:-1], head["sizes"], strict=False)  # none for a thumbnail
        ]
        return Decoded(pictures, parts[-1])

    async def _run(self, data: bytes, job: dict[str, Any], name: str) -> tuple[dict[str, Any], list[bytes]]:
        """Let a process do a job. If the process ends in the middle, another one tries: it may not be the picture."""
        limits = self._limits
        job |= {"length": len(data), "pixels": limits.pixels, "side": limits.side, "ratio": limits.ratio}
        try:
            head, parts = await self._try(data, job, name)
        except _Ended:
            try:
                head, parts = await self._try(data, job, name)
            except _Ended as again:
                raise again.problem(name) from None
        if "refused" in head:
            raise Problem(422, f"{name}: {head['refused']}.")
        return head, parts

    async def _try(self, data: bytes, job: dict[str, Any], name: str) -> tuple[dict[str, Any], list[bytes]]:
        async with self._places:
            worker = await self._worker()
            done = False
            try:
                async with asyncio.timeout(self._limits.decode_seconds):
                    answer = await _exchange(worker, job, data)
                done = True
                return answer
            except TimeoutError:
                seconds = self._limits.decode_seconds
                raise Problem(422, f"{name}: decoding takes longer than {seconds:g} seconds.") from None
            except (asyncio.IncompleteReadError, ConnectionError, ValueError):
                await _end(worker)
                raise _Ended(worker.returncode) from None
            finally:
                if done:
                    self._idle.append(worker)
                else:
                    await _end(worker)

    async def close(self) -> None:
        """End the processes."""
        while self._idle:
            await _end(self._idle.pop())

    async def _worker(self) -> asyncio.subprocess.Process:
        while self._idle:
            worker = self._idle.pop()
            if worker.returncode is None:
                return worker
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tophit.serve.decode_worker", str(self._limits.decode_bytes)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},  # threads' stacks count as memory
            start_new_session=True,  # Ctrl-C is the server's to handle
        )


async def _all_of(works: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Return all results; if one fails, the others are given up."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _exchange(
    worker: asyncio.subprocess.Process, job: dict[str, Any], data: bytes
) -> tuple[dict[str, Any], list[bytes]]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps(job).encode() + b"\n")
    worker.stdin.write(data)
    await worker.stdin.drain()
    line = await worker.stdout.readline()
    head = json.loads(line)
    return head, [await worker.stdout.readexactly(length) for length in head.get("lengths", ())]


async def _end(worker: asyncio.subprocess.Process) -> None:
    if worker.returncode is None:
        worker.kill()
    await worker.wait()
    if worker.stdin is not None:
        worker.stdin.close()
