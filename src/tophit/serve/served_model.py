"""A model and its index, as a server uses them: opened, named, embedding in batches."""

import asyncio
import os
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tophit.cancelling import cancellable, check_cancelled
from tophit.errors import TophitError, UsageError
from tophit.search.backend import SelfChecking
from tophit.search.catalogue import Catalogue, open_catalogue
from tophit.search.prepare import unit_vectors
from tophit.search.versions import read_versions
from tophit.serve.batching import Batcher, embedding_function
from tophit.serve.config import Limits
from tophit.serve.joining import Joiner
from tophit.serve.metrics import Metrics
from tophit.serve.problems import Problem, is_full

_THREADS = 4
SMALL_SEARCH = 500
"""Results of searches that are answered together. Larger ones wait for each other, so that small ones need not wait for
them, nor memory hold many.
"""
VIEW_THREAD = "view"
_ROOM_BYTES = 1_000_000
Result = TypeVar("Result")


class ServedModel:
    """A catalogue behind a server. Searches run in threads; every write and refresh gives the index a new version."""

    def __init__(self, folder: Path, writable: bool, limits: Limits, metrics: Metrics, name: str | None = None) -> None:
        self.folder = folder
        self.name = name or folder.name
        self.writable = writable
        self._version_name = read_versions(folder).current or ""
        self.catalogue: Catalogue = open_catalogue(folder, writable=writable)
        self.index = self.catalogue.index
        self.index.most_results = limits.k + limits.vectors  # items used as queries are left out of their results
        self.model = self.index.fingerprint
        if self.catalogue.embedder.takes_words:
            _ = self.catalogue.embedder.text  # loaded now, not while the first search waits
        self.batcher = Batcher(
            embedding_function(self.catalogue.embedder),
            limits.batch,
            limits.wait_seconds,
            limits.queue,
            metrics.forward_pass,
        )
        self._threads = ThreadPoolExecutor(_THREADS, "search")
        self.joiner = Joiner(self._threads, SMALL_SEARCH, metrics.joined_searches)
        self.version, self.count, self.trouble = "", 0, ""
        self._changes = 0
        self.is_local = isinstance(self.index.backend, SelfChecking)
        """Whether its backend counts changes, and a reader must be told to look at them."""
        self._read_facts()
        self._seen = self._signature()

    async def call(self, work: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Run something slow in a thread. When nobody waits for it any more, it stops at its next step."""
        given_up = threading.Event()

        def run() -> Result:
            with cancellable(given_up):
                check_cancelled()
                return work(*arguments, **options)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        except asyncio.CancelledError:
            given_up.set()
            raise

    async def upsert(self, ids: list[str], vectors: Any, metadata: list[dict[str, Any]]) -> None:
        """Write items durably."""
        await self._write(self.index.upsert, ids, vectors, metadata)

    async def delete(self, ids: list[str]) -> int:
        """Remove items durably and return how many there were."""
        return await self._write(self.index.delete, ids)

    async def _write(self, work: Callable[..., Result], *arguments: Any) -> Result:
        try:
            done = await self.call(work, *arguments)
        except Exception as error:
            self.failed(error)
            raise
        self.trouble = ""
        self._changes += 1
        await self.call(self._read_facts)
        return done

    def failed(self, error: BaseException) -> None:
        """Note that a write failed, unless the client asked for something wrong."""
        if not isinstance(error, UsageError | Problem | asyncio.CancelledError):
            self.trouble = "the disk is full" if is_full(error) else "the server's log says why"

    async def recover(self) -> None:
        """After a failed write, see whether the next one can succeed."""
        backend = self.index.backend
        if not self.trouble or not await self.call(_can_write, self.folder):
            return
        still = await self.call(backend.recover) if isinstance(backend, SelfChecking) else ""
        self.trouble = "the index must be opened again" if still else ""

    def unit_vectors(self, vectors: list[list[float]]) -> np.ndarray:
        """Return a client's vectors (n, dim) as unit vectors, or explain what is wrong with them."""
        if any(len(vector) != self.index.dim for vector in vectors):
            raise Problem(422, f"A vector of this model has {self.index.dim} numbers.")
        return unit_vectors(vectors, self.index.dim)

    async def refresh(self) -> bool:
        """Show what another process wrote to the index; return whether there was anything.

        What a backend behind an address finds is always up to date; only the number of items is to be learned.
        """
        if not self.is_local:
            before = self.version
            await self.call(self._read_facts)
            return self.version != before
        if self.writable:
            return False
        seen = await self.call(self._signature)
        if seen == self._seen:
            return False
        try:
            changed = await self.call(self.index.refresh)
        except TophitError:
            return False  # in the middle of a change: try again later
        self._seen = seen
        await self.call(self._read_facts)
        return changed

    def close(self) -> None:
        """Finish work in progress and close the index."""
        self._threads.shutdown()
        self.batcher.close()
        self.catalogue.close()

    def _signature(self) -> tuple[Any, ...]:
        """Return what changes on the disk whenever something is written."""
        folder = self.folder / self._version_name / "index"
        if self.writable or not folder.is_dir():
            return ()
        found = []
        for path in sorted(folder.iterdir()):
            try:
                facts = path.stat()
            except OSError:
                continue
            if not path.name.endswith("-shm"):  # a reader touches it
                found.append((path.name, facts.st_size, facts.st_mtime_ns))
        return tuple(found)

    def _read_facts(self) -> None:
        """Learn the number of items, and the version: the catalogue's and the marks of a backend that counts changes.

        Of another backend, the number of items and of our own changes. They are kept, so that nobody waits for the
        index to be told them.
        """
        backend = self.index.backend
        self.count = len(self.index)
        marks = backend.mark() if isinstance(backend, SelfChecking) else (self.count, self._changes)
        self.version = ".".join([self._version_name or "v0", *map(str, marks)])


async def in_daemon(work: Callable[[], Result]) -> Result:
    """Run something that takes minutes in a thread that a stopping server does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()
    given_up = threading.Event()

    def tell(call: Callable[..., None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(lambda: future.done() or call(value))

    def run() -> None:
        try:
            with cancellable(given_up):
                tell(future.set_result, work())
        except BaseException as error:
            tell(future.set_exception, error)

    threading.Thread(target=run, daemon=True, name=VIEW_THREAD).start()
    try:
        return await future
    except asyncio.CancelledError:
        given_up.set()
        raise


def _can_write(folder: Path) -> bool:
    """Return whether some room is left in a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    return True
