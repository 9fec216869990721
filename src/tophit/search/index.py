"""The index: unit vectors with ids and metadata that outlive the process, in one of several backends.

>>> import tempfile
>>> with Index.create(tempfile.mkdtemp(), dim=2, fingerprint="my embedder") as index:
...     index.upsert(["east", "north"], [[2, 0], [0, 3]], [{"kind": "side"}, {"kind": "top"}])
...     [[hit.id for hit in hits] for hits in index.search([[1, 0.1]], k=2)]
...     index.search([1, 0.1], where={"kind": "top"})[0][0].id
[['east', 'north']]
'north'
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from tophit.errors import TophitError, UsageError
from tophit.search.backend import (
    Backend,
    Hit,
    Item,
    Nearest,
    SelfChecking,
    backend_class,
    backend_of,
    folder_backend,
)
from tophit.search.filters import Condition, parse_filter
from tophit.search.prepare import check_ids, check_metadata, last_of_each, unit_vectors

MOST_RESULTS = 1000


class Index:
    """Search by cosine similarity among items: an id of the user's, a vector, metadata.

    Every backend gets its input through here, checked once for all: vectors are finite and not zero, and made unit
    length; ids are strings; of an id given twice in a call the last counts; metadata is JSON.
    """

    def __init__(self, backend: Backend, most_results: int = MOST_RESULTS) -> None:
        self.backend = backend
        self.most_results = most_results
        self._fast = backend if isinstance(backend, Nearest) else None  # asked once: it takes longer than some searches

    @classmethod
    def create(
        cls,
        location: str | Path,
        dim: int,
        fingerprint: str = "",
        backend: str | None = None,
        most_results: int = MOST_RESULTS,
        **options: Any,
    ) -> Self:
        """Create an empty index for vectors of ``dim`` numbers and open it for writing.

        ``fingerprint`` identifies the embedder that makes the vectors. ``backend`` (formerly ``engine``) is a
        registered name or ``package.module:Name``; without it, the location tells. Further options are the backend's.
        """
        if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
            raise UsageError(f"dim is a whole number of at least 1, not {dim!r}.")
        name = backend or options.pop("engine", None) or backend_of(location)
        return cls(backend_class(name).create(location, dim, fingerprint, **options), most_results)

    @classmethod
    def open(
        cls,
        location: str | Path,
        fingerprint: str | None = None,
        backend: str | None = None,
        most_results: int = MOST_RESULTS,
        **options: Any,
    ) -> Self:
        """Open an index; with ``fingerprint``, only if that embedder made it.

        In a folder it opens a snapshot for reading, unless ``writable=True``.
        """
        name = backend or options.pop("engine", None) or backend_of(location)
        opened: Backend = backend_class(name).open(location, **options)
        if fingerprint is not None and opened.fingerprint != fingerprint:
            made_by = opened.fingerprint or "an unknown one"
            opened.close()
            raise TophitError(
                f"The index in {location} was made by another embedder ({made_by}, not {fingerprint}): "
                "search it with that one, or build the index again."
            )
        return cls(opened, most_results)

    @classmethod
    def build(
        cls,
        folder: str | Path,
        ids: Sequence[str],
        vectors: Any,
        metadata: Sequence[Mapping[str, Any]] | None = None,
        fingerprint: str = "",
        **options: Any,
    ) -> Self:
        """Write a whole index into a folder and open it for writing.

        An existing index there stays active until the new one is complete, and is then replaced atomically.
        """
        array = np.asarray(vectors)
        if array.ndim != 2 or not array.shape[1]:
            raise UsageError(f"Expected vectors of shape (N, dim), not {array.shape}.")
        items = _checked_items(ids, array, metadata, array.shape[1])
        if len(set(ids)) != len(ids):
            raise UsageError("Ids must be different from each other.")
        return cls(backend_class(folder_backend()).build(folder, *items, fingerprint, **options))

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return self.backend.dim

    @property
    def fingerprint(self) -> str:
        """Identifies the embedder that made the vectors."""
        return self.backend.fingerprint

    def __len__(self) -> int:
        return self.backend.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def upsert(self, ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Add items, or replace those of the same id; when it returns they are durable."""
        if not len(ids):
            return
        ids, array, fields = _checked_items(ids, vectors, metadata, self.dim)
        last = last_of_each(ids)
        if len(last) < len(ids):
            ids, array, fields = [ids[i] for i in last], array[last], [fields[i] for i in last]
        self.backend.upsert(ids, array, fields)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items, durably, and return how many there were."""
        ids = list(dict.fromkeys(check_ids(ids)))
        return self.backend.delete(ids) if ids else 0

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        """Return the item of each id, in order; None where there is none."""
        ids = check_ids(ids)
        return self.backend.get(ids) if ids else []

    def search(
        self, queries: Any, k: int = 10, where: Mapping[str, Any] | None = None, with_metadata: bool = True
    ) -> list[list[Hit]]:
        """Return up to k items nearest to each query vector (Q, dim) or (dim,), best first; equal scores by id.

        ``where`` keeps the items that meet it (see :mod:`tophit.search.filters`). ``with_metadata=False`` leaves the
        hits' metadata empty, which is faster.
        """
        conditions, array = self._checked(queries, k, where)
        if not len(array):
            return []
        if with_metadata:
            return self.backend.search(array, int(k), conditions)
        return self.backend.search(array, int(k), conditions, with_metadata=False)

    def nearest(
        self, queries: Any, k: int = 10, where: Mapping[str, Any] | None = None
    ) -> tuple[list[list[str]], list[list[float]]]:
        """Return only ids and scores of what :meth:`search` finds, two lists of lists: the fastest way to search."""
        conditions, array = self._checked(queries, k, where)
        if not len(array):
            return [], []
        if self._fast is not None:
            return self._fast.nearest(array, int(k), conditions)
        found = self.backend.search(array, int(k), conditions)
        return [[hit.id for hit in hits] for hits in found], [[hit.score for hit in hits] for hits in found]

    def count(self, where: Mapping[str, Any] | None = None) -> int:
        """Return how many items meet a filter; all, without one."""
        conditions: Sequence[Condition] = parse_filter(where)
        return self.backend.count(conditions)

    def items(self, batch: int = 1024) -> Iterator[Item]:
        """Iterate over all items, ordered by id; they are read in batches."""
        for some in self.backend.items(batch):
            yield from some

    def compact(self) -> None:
        """Merge and tune what was written since the last time."""
        self.backend.compact()

    def stats(self) -> dict[str, Any]:
        """Return the facts of the index: count, dim, kind of index, bytes on disk, measured recall."""
        return {**self.backend.stats(), "fingerprint": self.fingerprint}

    def refresh(self) -> bool:
        """Let a reader see what was written since it was opened; return whether there was anything."""
        return self._self_checking().refresh()

    def verify(self) -> list[str]:
        """Read everything and return the problems found, one sentence each."""
        return self._self_checking().verify()

    def repair(self) -> list[str]:
        """Recover what can be recovered; return what was done and lost, one sentence each. Needs ``writable=True``."""
        return self._self_checking().repair()

    @staticmethod
    def repair_folder(folder: str | Path) -> list[str]:
        """Do the same for an index in a folder that is too damaged to be opened."""
        return backend_class(folder_backend()).repair_folder(folder)

    def close(self) -> None:
        """Release locks, files and connections."""
        self.backend.close()

    def _checked(self, queries: Any, k: int, where: Mapping[str, Any] | None) -> tuple[list[Condition], np.ndarray]:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= self.most_results:
            raise UsageError(f"k must be at least 1 and at most {self.most_results}, not {k!r}.")
        conditions = parse_filter(where)
        if isinstance(queries, (list, tuple, np.ndarray)) and len(queries) == 0:
            return conditions, np.empty((0, self.dim), np.float32)
        return conditions, unit_vectors(queries, self.dim, "query")

    def _self_checking(self) -> SelfChecking:
        if not isinstance(self.backend, SelfChecking):
            raise UsageError(
                f"{type(self.backend).__name__} has no snapshots or files to check; its server takes care of both."
            )
        return self.backend


def _checked_items(
    ids: Sequence[str], vectors: Any, metadata: Sequence[Mapping[str, Any]] | None, dim: int
) -> tuple[list[str], np.ndarray, list[dict[str, Any]]]:
    checked, array = check_ids(ids), unit_vectors(vectors, dim)
    if len(array) != len(checked):
        raise UsageError(f"There are {len(checked)} ids but {len(array)} vectors.")
    return checked, array, check_metadata(metadata, len(checked))
