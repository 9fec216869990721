"""The map: every item a point, near ones near each other; made once for a version of the index and kept beside it."""

import functools
import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tophit.figures.maps import coordinates
from tophit.files import replace_file
from tophit.search.index import Index

MOST_POINTS = 10_000
_MOST_LABELS = 65_535
_FORMAT = 1


@dataclass(frozen=True)
class EmbeddingMap:
    """Points (n, 2) float32 within -1..1, a label number (n,) uint16 each, the labels' names, the items' ids."""

    points: np.ndarray
    labels: np.ndarray
    names: list[str]
    ids: list[str]
    method: str

    @functools.cached_property
    def name(self) -> str:
        """Names this map among others: rows mean items of one map only."""
        return hashlib.sha256(self.points.tobytes() + "\0".join(self.ids).encode()).hexdigest()[:16]

    def binary(self) -> bytes:
        """Return x and y of every point as float32, then every label's number as uint16, little-endian."""
        return self.points.astype("<f4").tobytes() + self.labels.astype("<u2").tobytes()


def make_map(index: Index, folder: Path, version: str, most: int = MOST_POINTS) -> EmbeddingMap:
    """Return the map of an index, read from the folder if it is there for this version.

    Of more than ``most`` items, as many are taken at equal steps in the order of their ids.
    """
    path = folder / f"map-{hashlib.sha256(f'{_FORMAT} {version} {most}'.encode()).hexdigest()[:16]}.npz"
    if path.is_file():
        try:
            return _read(path)
        except (OSError, ValueError, KeyError):
            path.unlink(missing_ok=True)
    made = _make(index, most)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("map-*.npz"):
            old.unlink(missing_ok=True)
        with replace_file(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(
                file,
                points=made.points,
                labels=made.labels,
                names=np.array(made.names, np.str_),
                ids=np.array(made.ids, np.str_),
                method=np.array(made.method),
            )
    except OSError:
        pass  # a folder that can't be written to: the map is made anew the next time
    return made


def _make(index: Index, most: int) -> EmbeddingMap:
    count = len(index)
    step = max(1, -(-count // most))
    chosen = [item for number, item in enumerate(index.items()) if number % step == 0]
    if not chosen:
        return EmbeddingMap(np.zeros((0, 2), np.float32), np.zeros(0, np.uint16), [], [], "none")
    points, method = coordinates(np.stack([item.vector for item in chosen]))
    labels = [str(item.metadata.get("label", "")) for item in chosen]
    names = [name for name, _ in Counter(labels).most_common(_MOST_LABELS)]
    numbers = {name: number for number, name in enumerate(names)}
    return EmbeddingMap(
        points,
        np.array([numbers.get(label, _MOST_LABELS) for label in labels], np.uint16),
        names,
        [item.id for item in chosen],
        method,
    )


def _read(path: Path) -> EmbeddingMap:
    with np.load(path, allow_pickle=False) as kept:
        return EmbeddingMap(
            kept["points"], kept["labels"], kept["names"].tolist(), kept["ids"].tolist(), str(kept["method"])
        )
