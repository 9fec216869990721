"""Keys: every write of an item has a number of its own, and the rows of a part are in the order of their keys."""

from collections.abc import Iterable

import numpy as np


def all_keys(rows: Iterable[tuple[int]]) -> np.ndarray:
    """Return the keys that a query of the database gives, as an array."""
    return np.fromiter((row[0] for row in rows), np.int64)


def rows_of(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return where the wanted keys are in ascending keys; those that are not there are left out."""
    places = np.searchsorted(keys, wanted)
    inside = places < len(keys)
    places, wanted = places[inside], wanted[inside]
    return places[keys[places] == wanted]
