"""A model and its index, as a server uses them: opened, named, embedding in batches."""

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tophit.errors import TophitError
from tophit.search.backend import SelfChecking
from tophit.search.catalogue import Catalogue, open_catalogue
from tophit.search.prepare import unit_vectors
from tophit.search.versions import read_versions
from tophit.serve.batching import Batcher, embedding_function
from tophit.serve.config import Limits
from tophit.serve.metrics import Metrics
from tophit.serve.problems import Problem

_THREADS = 4
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
        self.batcher = Batcher(
            embedding_function(self.catalogue.embedder),
            limits.batch,
            limits.wait_seconds,
            limits.queue,
            metrics.forward_pass,
        )
        self._threads = ThreadPoolExecutor(_THREADS, "search")
        self.version = self._read_version()
        self._seen = self._signature()

    async def call(self, work: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Run something slow in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, functools.partial(work, *arguments, **options))

    async def upsert(self, ids: list[str], vectors: Any, metadata: list[dict[str, Any]]) -> None:
        """Write items durably."""
        await self.call(self.index.upsert, ids, vectors, metadata)
        self.version = await self.call(self._read_version)

    async def delete(self, ids: list[str]) -> int:
        """Remove items durably and return how many there were."""
        gone = await self.call(self.index.delete, ids)
        self.version = await self.call(self._read_version)
        return gone

    def unit_vectors(self, vectors: list[list[float]]) -> np.ndarray:
        """Return a client's vectors (n, dim) as unit vectors, or explain what is wrong with them."""
        if any(len(vector) != self.index.dim for vector in vectors):
            raise Problem(422, f"A vector of this model has {self.index.dim} numbers.")
        return unit_vectors(vectors, self.index.dim)

    async def refresh(self) -> bool:
        """Show what another process wrote to the index; return whether there was anything."""
        if self.writable or not isinstance(self.index.backend, SelfChecking):
            return False
        seen = await self.call(self._signature)
        if seen == self._seen:
            return False
        try:
            changed = await self.call(self.index.refresh)
        except TophitError:
            return False  # in the middle of a change: try again later
        self._seen = seen
        self.version = await self.call(self._read_version)
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

    def _read_version(self) -> str:
        """Return the catalogue's version and the marks of a backend that counts its changes."""
        backend = self.index.backend
        marks = backend.mark() if isinstance(backend, SelfChecking) else ()
        return ".".join([self._version_name or "v0", *map(str, marks)])
