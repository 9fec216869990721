"""Images of requests that arrive at the same time go through the network together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np

from tophit.models.embedder import Embedder
from tophit.models.runtimes import build_runtime
from tophit.serve.problems import too_busy


class Batcher:
    """One forward pass at a time, of all images that wait for it.

    A pass starts when ``batch`` images wait, or the first has waited ``wait_seconds``. While one is running the next
    one fills up, so under load batches grow by themselves.
    """

    def __init__(
        self,
        embed: Callable[[Sequence[np.ndarray]], np.ndarray],
        batch: int,
        wait_seconds: float,
        most_waiting: int,
        seen: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._embed = embed
        self._batch = batch
        self._wait = wait_seconds
        self._most_waiting = most_waiting
        self._seen = seen
        self._waiting: deque[tuple[np.ndarray, asyncio.Future[np.ndarray]]] = deque()
        self._filled = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "embed")
        self._task: asyncio.Task[None] | None = None

    async def embed(self, pictures: Sequence[np.ndarray]) -> np.ndarray:
        """Return the unit vectors (n, dim) of pictures (height, width, 3), uint8."""
        if len(self._waiting) + len(pictures) > max(self._most_waiting, len(pictures)):
            raise too_busy()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in pictures]
        self._waiting.extend(zip(pictures, futures, strict=True))
        if len(self._waiting) >= self._batch:
            self._filled.set()
        return np.stack(await asyncio.gather(*futures))

    async def _run(self) -> None:
        """Work until nothing waits."""
        while self._waiting:
            if len(self._waiting) < self._batch and self._wait:
                self._filled.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._filled.wait(), self._wait)
            some = [self._waiting.popleft() for _ in range(min(self._batch, len(self._waiting)))]
            some = [(picture, future) for picture, future in some if not future.cancelled()]  # its client has gone
            if some:
                await self._pass(some)

    async def _pass(self, some: list[tuple[np.ndarray, asyncio.Future[np.ndarray]]]) -> None:
        try:
            loop = asyncio.get_running_loop()
            vectors = await loop.run_in_executor(self._thread, self._embed, [picture for picture, _ in some])
        except Exception as error:
            for _, future in some:
                if not future.done():
                    future.set_exception(error)
            return
        self._seen(len(some))
        for (_, future), vector in zip(some, vectors, strict=True):
            if not future.done():
                future.set_result(vector)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


def embedding_function(embedder: Embedder) -> Callable[[Sequence[np.ndarray]], np.ndarray]:
    """Return what maps pictures to unit vectors in one forward pass."""
    runtime = build_runtime("torch", embedder)
    return lambda pictures: embedder.encode(pictures, len(pictures), runtime=runtime)
