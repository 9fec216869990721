"""A search backend: the one interface behind :class:`tophit.search.Index`, and how a backend is found by name.

A backend gets clean input: unit vectors in float32, ids that are strings and differ within a call, metadata that is
JSON, and a parsed filter. :class:`tophit.search.Index` checks and prepares that once for all of them.

A backend of your own is a class with the methods of :class:`Backend` and the class methods ``create`` and ``open``.
Name it as ``package.module:Name``, or decorate it with ``register("backend", "mine", prefixes=("mine://",))``. The
further arguments of ``register`` are those of :class:`BackendFacts`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tophit.errors import UsageError
from tophit.registry import find, names
from tophit.search.filters import Condition


@dataclass(frozen=True, init=False)
class Hit:
    """One search result: rank from 1, cosine similarity, and the item found; with groups, the rest of its group."""

    rank: int
    score: float
    id: str
    metadata: dict[str, Any]
    others: "tuple[Hit, ...]" = ()
    chance: float | None = None
    """That it is right, where the index is calibrated."""

    def __init__(
        self,
        rank: int,
        score: float,
        id: str,  # noqa: A002
        metadata: dict[str, Any],
        others: "tuple[Hit, ...]" = (),
        chance: float | None = None,
    ) -> None:
        """Set the fields as plain entries: the checks of a frozen class would take as long as some searches."""
        fields = self.__dict__
        fields["rank"] = rank
        fields["score"] = score
        fields["id"] = id
        fields["metadata"] = metadata
        fields["others"] = others
        fields["chance"] = chance


@dataclass(frozen=True)
class Item:
    """What an index holds under an id: a unit vector (dim,) and metadata."""

    id: str
    vector: np.ndarray
    metadata: dict[str, Any]


class Backend(Protocol):
    """Durable storage and search of unit vectors with ids and metadata."""

    dim: int
    fingerprint: str
    """Identifies the embedder that made the vectors; stored when the index is created."""

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, metadata: Sequence[Mapping[str, Any]]) -> None:
        """Add items or replace those of the same id; when it returns, they are durable and every search sees them."""
        ...

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items and return how many there were; unknown ids are ignored."""
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
        """Iterate over all items in batches, ordered by id."""
        ...

    def compact(self) -> None:
        """Merge and tune what was written since the last time; searches and writes continue meanwhile or wait."""
        ...

    def stats(self) -> dict[str, Any]:
        """Return the facts of the index: count, dim, kind of index, bytes on disk, measured recall, version."""
        ...

    def close(self) -> None:
        """Release locks, files and connections."""
        ...


@runtime_checkable
class SelfChecking(Protocol):
    """A backend that owns its files: readers see a snapshot, damage can be found and repaired."""

    def refresh(self) -> bool:
        """Show a reader what was written since it was opened; return whether there was anything."""
        ...

    def mark(self) -> tuple[int, ...]:
        """Return numbers that change with every write."""
        ...

    def recover(self) -> str:
        """After a failed write, find out from the disk whether it is there; return what still forbids writing."""
        ...

    def verify(self) -> list[str]:
        """Return the problems found, one sentence each."""
        ...

    def repair(self) -> list[str]:
        """Recover what can be recovered; return what was done and lost, one sentence each."""
        ...


@runtime_checkable
class Nearest(Protocol):
    """A backend that can answer with ids and scores alone, faster than with hits."""

    def nearest(
        self, queries: np.ndarray, k: int, where: Sequence[Condition] = ()
    ) -> tuple[list[list[str]], list[list[float]]]:
        """Return ids and scores of up to k items nearest to each query, ordered as :meth:`Backend.search` does."""
        ...


@dataclass(frozen=True)
class BackendFacts:
    """What a backend says about itself where it is registered; the defaults suit a server at an address."""

    prefixes: tuple[str, ...] = ()
    """How its addresses start; an address is recognised by them."""
    suffixes: tuple[str, ...] = ()
    """How its addresses may end instead."""
    in_folder: bool = False
    """Whether its files are in the catalogue's folder. It takes no address, and its ``open`` takes ``writable``."""
    address: str = "--uri"
    """The option of ``tophit index`` that takes its address."""
    address_like: str = ""
    """What an address looks like, for the help of that option."""
    named_by: str = "collection"
    """The argument of ``create`` and ``open`` that names one index among others at the same address."""
    kind_option: str = "index"
    """The argument of ``create`` that takes the kind of index."""
    kinds: tuple[str, ...] = ()
    """The kinds of index there are; empty: any."""
    other_kinds: bool = False
    """Whether there are further ones, so that only the server can tell."""
    tunes_recall: bool = False
    """Whether ``create`` takes ``recall``, ``memory`` and ``build``: it chooses and tunes its kind of index.

    ``open`` takes them too, and the kind, for the next compaction.
    """
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Arguments of ``create`` and ``open`` that come from environment variables and are never written to disk."""
    password: str = ""
    """Where a password belongs, if not in one of the secrets."""
    read_by_itself: tuple[str, ...] = ()
    """Environment variables with a secret that its library reads by itself."""
    without_credentials: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``create`` and ``open`` that keep it from sending secrets, for an address the user did not name."""


def backend_class(name: str) -> Any:
    """Return the class of a backend, by its registered name or as ``package.module:Name``."""
    return find("backend", name).load()


def backend_facts(name: str) -> BackendFacts:
    """Return what a backend says about itself."""
    return BackendFacts(**find("backend", name).facts)


def check_kind(backend: str, kind: str) -> None:
    """Refuse a kind of index that a backend does not have."""
    facts = backend_facts(backend)
    if facts.kinds and kind not in facts.kinds and not facts.other_kinds:
        raise UsageError(f"There is no kind of index '{kind}'; choices: {', '.join(facts.kinds)}.")


def backend_of(location: str | Path) -> str:
    """Return the name of the backend that a location belongs to; a folder belongs to the one that uses a folder."""
    text = str(location)
    known = {name: backend_facts(name) for name in names("backend")}
    for name, facts in known.items():
        if text.startswith(facts.prefixes) or text.endswith(facts.suffixes):
            return name
    return folder_backend()


def folder_backend() -> str:
    """Return the name of the backend that keeps its files in a folder: the default."""
    return next(name for name in names("backend") if backend_facts(name).in_folder)
