"""Views of an index that a page shows: what its fields hold, a map of its items, and its worst queries.

Each is made in one pass over the index, in a thread. The map is also kept on disk beside the index.
"""

import functools
import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tophit.data.item_rows import LABEL_KIND, LABELS, deepest_folder, listed_labels
from tophit.data.label_kinds import SEPARATORS
from tophit.evaluation import Relevance, retrieval_metrics
from tophit.evaluation.worst import worst_queries
from tophit.figures.maps import coordinates
from tophit.files import replace_file
from tophit.search.backend import Item
from tophit.search.index import Index
from tophit.serve.requests import RESERVED

MOST_POINTS = 10_000
_MOST_LABELS = 65_535
_FORMAT = 1
_MOST_VALUES = 1000  # of a field, that a page offers to choose from
MOST_FIELDS = 64
_SAMPLE = 48
MOST_QUERIES = 5000
_SHOWN = 60
_RESULTS = 12


@dataclass
class FieldFacts:
    """The values of a metadata field: each with its count, and the range of numbers."""

    name: str
    count: int = 0
    least: float | None = None
    most: float | None = None
    values: Counter[Any] = field(default_factory=Counter)
    cut: bool = False

    def add(self, value: Any) -> None:
        """Count a value."""
        self.count += 1
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.least = value if self.least is None else min(self.least, value)
            self.most = value if self.most is None else max(self.most, value)
        if value in self.values or len(self.values) < _MOST_VALUES:
            self.values[value] += 1
        else:
            self.cut = True

    def plain(self) -> dict[str, Any]:
        """Return the facts as JSON, the values in order."""
        values = sorted(self.values.items(), key=lambda pair: (str(type(pair[0])), pair[0]))
        return {
            "name": self.name,
            "count": self.count,
            "least": self.least,
            "most": self.most,
            "values": [{"value": value, "count": count} for value, count in values],
            "complete": not self.cut,
        }


@dataclass
class Survey:
    """What an index holds: its fields, the deepest folder that contains all images, a sample of its ids."""

    count: int
    fields: dict[str, FieldFacts]
    root: Path | None
    sample: list[str]


def gently(items: Iterable[Item], batch: int) -> Iterator[Item]:
    """Iterate in the background: after each batch, leave the index to searches for three times as long as it took.

    Who takes a lock again at once does not let those in who wait for it.
    """
    start = time.perf_counter()
    for number, item in enumerate(items, 1):
        yield item
        if number % batch == 0:
            time.sleep(3 * (time.perf_counter() - start))
            start = time.perf_counter()


def survey(items: Iterable[Item], count: int, uploads: Path) -> Survey:
    """Learn what an index holds, in one pass over its items; pictures in the folder of uploads tell no folder."""
    fields: dict[str, FieldFacts] = {}
    sample: list[str] = []
    folders: set[str] = set()
    number = 0
    for number, item in enumerate(items, 1):
        several = [(LABELS, label) for label in listed_labels(item.metadata)]
        for name, value in (*item.metadata.items(), *several):
            if name in RESERVED or not isinstance(value, (str, bool, int, float)):
                continue
            if name in fields or len(fields) < MOST_FIELDS:
                fields.setdefault(name, FieldFacts(name)).add(value)
        path = item.metadata.get("path")
        if isinstance(path, str) and os.path.isabs(path) and (folder := os.path.dirname(path)) != str(uploads):
            folders.add(folder)
        if number * _SAMPLE // max(count, _SAMPLE) > len(sample):  # at equal steps from first to last
            sample.append(item.id)
    root = deepest_folder(folders)
    return Survey(number, dict(sorted(fields.items())), None if root is None else Path(root), sample)


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
        """Identifies this map: row numbers belong to one map only."""
        return hashlib.sha256(self.points.tobytes() + "\0".join(self.ids).encode()).hexdigest()[:16]

    def binary(self) -> bytes:
        """Return x and y of every point as float32, then every label's number as uint16, little-endian."""
        return self.points.astype("<f4").tobytes() + self.labels.astype("<u2").tobytes()


def make_map(index: Index, folder: Path, version: str, most: int = MOST_POINTS) -> EmbeddingMap:
    """Return the map of an index, from the folder if this version's map is there.

    Of more than ``most`` items, ``most`` are taken at equal steps in the order of their ids.
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
        pass  # a folder that can't be written to: the map is made again next time
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


@dataclass(frozen=True)
class WorstQuery:
    """A query, its average precision, and what it found: ids, scores, and whether each is right."""

    id: str
    value: float
    first_right_rank: int
    results: list[tuple[str, float, bool]]


@dataclass(frozen=True)
class Worst:
    """The worst queries, worst first; how many were tried; labels that are confused; means over queries."""

    tried: int
    queries: list[WorstQuery]
    confusions: list[tuple[str, str, int]]
    metrics: dict[str, float]
    unseen: bool = False  # only items that the model has not learned were tried


def find_worst(index: Index, most: int = MOST_QUERIES) -> Worst:
    """Use items as queries and return those with the lowest average precision.

    Of more than ``most`` items, ``most`` are queries, at equal steps in the order of their ids. Items without a label
    are left out. If the model has learned some items (their split is not test), only the others are queries.
    """
    chosen = [item for item in index.items() if item.metadata.get("label") not in (None, "")]
    if len(chosen) < 2:
        return Worst(0, [], [], {})
    ids = [item.id for item in chosen]
    vectors = np.stack([item.vector for item in chosen])
    labels = [str(item.metadata["label"]) for item in chosen]
    tests = np.array([item.metadata.get("split", "test") == "test" for item in chosen])
    unseen = bool(tests.any() and not tests.all())
    candidates = np.flatnonzero(tests) if unseen else np.arange(len(chosen))
    asking = candidates[:: max(1, -(-len(candidates) // most))]
    given = (vectors[asking], [labels[i] for i in asking], vectors, labels)
    relevance = _shared_labels(chosen, asking)
    metrics = retrieval_metrics(*given, own_items=asking, relevance=relevance)
    values = metrics.per_query["mAP"]
    found = worst_queries(values, *given, asking, relevance=relevance, count=_SHOWN, results=_RESULTS)
    queries = [
        WorstQuery(
            ids[asking[one.query]],
            one.value,
            one.first_right_rank,
            [(ids[i], s, c) for i, s, c in zip(one.results, one.scores, one.correct, strict=True)],
        )
        for one in found.queries
    ]
    confusions = [(str(each.label), str(each.taken_for), each.queries) for each in found.confusions]
    return Worst(len(asking), queries, confusions, {k: float(v) for k, v in metrics.items() if np.isfinite(v)}, unseen)


def _shared_labels(items: Sequence[Item], asking: np.ndarray) -> Relevance | None:
    """Return what is right for the asking items where all have several labels: one in common; None for one label."""
    if not all(LABEL_KIND in item.metadata for item in items):
        return None
    sets = [str(item.metadata["label"]).split(SEPARATORS["several"]) for item in items]
    return Relevance.of_sets([sets[row] for row in asking.tolist()], sets)
