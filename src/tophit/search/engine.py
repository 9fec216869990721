"""What every search engine does: the one interface behind :class:`tophit.search.Index`.

An engine gets clean input: unit vectors in float32, ids that are strings and differ within a call, metadata that is
JSON, and a parsed filter. :class:`tophit.search.Index` checks and prepares that once for all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tophit.search.filters import Condition


@dataclass(frozen=True)
class Hit:
    """One search result: rank from 1, cosine similarity, and the item found."""

    rank: int
    score: float
    id: str
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Item:
    """What an index holds under an id: a unit vector (dim,) and metadata."""

    id: str
    vector: np.ndarray
    metadata: dict[str, Any]


class Engine(Protocol):
    """Unit vectors with ids and metadata that outlive the process."""

    dim: int
    fingerprint: str
    """Names the embedder that made the vectors; stored when the engine's collection is created."""

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, metadata: Sequence[Mapping[str, Any]]) -> None:
        """Add items or replace those of the same id; when it returns, they are durable and every search sees them."""
        ...

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items and return how many were there; unknown ids are ignored."""
        ...

    def get(self, ids: Sequence[str]) -> list[Item | None]:
        """Return the item of each id, in order; None where there is none."""
        ...

    def search(
        self, queries: np.ndarray, k: int, where: Sequence[Condition] = (), with_metadata: bool = True
    ) -> list[list[Hit]]:
        """Return up to k items nearest to each query (Q, dim), best first, among those that meet every condition.

        Equal scores are ordered by id. ``with_metadata=False`` may leave the hits' metadata empty.
        """
        ...

    def count(self, where: Sequence[Condition] = ()) -> int:
        """Return how many items meet every condition."""
        ...

    def items(self, batch: int = 1024) -> Iterator[list[Item]]:
        """Go through all items in batches, in the order of their ids."""
        ...

    def compact(self) -> None:
        """Merge and tune what was written since the last time; searches and writes go on meanwhile or wait."""
        ...

    def stats(self) -> dict[str, Any]:
        """Return what there is to know: count, dim, kind of index, bytes on disk, measured recall, version."""
        ...

    def close(self) -> None:
        """Give up locks, files and connections."""
        ...


@runtime_checkable
class SelfChecking(Protocol):
    """An engine that owns its files: readers see a snapshot, damage can be found and mended."""

    def refresh(self) -> bool:
        """Show a reader what was written since; say whether there was anything."""
        ...

    def verify(self) -> list[str]:
        """Return what is wrong, a sentence each."""
        ...

    def repair(self) -> list[str]:
        """Recover what can be; return what was done and lost, a sentence each."""
        ...


@runtime_checkable
class Nearest(Protocol):
    """An engine that can answer with ids and scores alone, faster than with hits."""

    def nearest(
        self, queries: np.ndarray, k: int, where: Sequence[Condition] = ()
    ) -> tuple[list[list[str]], list[list[float]]]:
        """Return ids and scores of up to k items nearest to each query, as :meth:`Engine.search` orders them."""
        ...
