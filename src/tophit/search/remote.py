"""What the engines behind an address share: names of collections, packages that may be missing, order of results."""

import importlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np

from tophit.errors import TophitError, UsageError
from tophit.search.engine import Hit, Item

FORMAT = 1
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")


def import_package(name: str, engine: str) -> ModuleType:
    """Import an optional package, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TophitError(
            f"The engine {engine} needs the package {name}, which can't be imported ({error}); "
            f"install it with: pip install 'tophit[{engine}]'"
        ) from error


@contextmanager
def closed_on_error(engine: Any) -> Iterator[None]:
    """Close an engine that could not be made or opened."""
    try:
        yield
    except BaseException:
        engine.close()
        raise


def check_name(name: str, what: str) -> str:
    """Return a collection's or table's name if every engine can take it."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"A {what} is named by up to 60 letters, digits and _, not starting with a digit: not {name!r}."
        )
    return name


def describe(dim: int, fingerprint: str, **more: Any) -> str:
    """Return what is pinned to a collection when it is made: the format, the vectors' length, the embedder's name."""
    return json.dumps({"tophit": FORMAT, "dim": dim, "fingerprint": fingerprint, **more}, sort_keys=True)


def read_description(text: str | None, where: str) -> dict[str, Any]:
    """Return what :func:`describe` pinned, refusing what Tophit did not make or can't read."""
    try:
        fields = json.loads(text or "")
        version = fields["tophit"]
    except (ValueError, TypeError, KeyError):
        raise TophitError(f"{where} was not made by Tophit; choose another name.") from None
    if version != FORMAT:
        raise TophitError(f"{where} has format {version}; this version of Tophit reads {FORMAT}.")
    return fields


def exact_scores(query: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return the inner products (N,) of a query (d,) and vectors (N, d), summed in float64 and rounded to float32.

    Equal vectors get equal scores wherever they stand, which a matrix product does not promise.
    """
    return np.einsum("nd,d->n", vectors.astype(np.float64), query.astype(np.float64)).astype(np.float32)


def best_hits(query: np.ndarray, found: Sequence[Item], k: int) -> tuple[list[Hit], bool]:
    """Return the k best items by exact score, equal ones by id, and whether an equal one may have been cut off."""
    if not found:
        return [], False
    scores = exact_scores(query, np.stack([item.vector for item in found]))
    order = sorted(range(len(found)), key=lambda i: (-scores[i], found[i].id))
    hits = [Hit(rank, float(scores[i]), found[i].id, found[i].metadata) for rank, i in enumerate(order[:k], 1)]
    return hits, len(found) >= k and bool(scores[order[k - 1]] <= scores[order[-1]] + 1e-6)
