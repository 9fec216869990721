"""Near-duplicates of a collection: groups of items whose similarity is at least a threshold."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tophit.errors import UsageError
from tophit.files import replace_file
from tophit.progress import Progress
from tophit.search.backend import Item
from tophit.search.index import Index

_BATCH = 256
_FIRST_LOOK = 16  # neighbours requested at first; more where all of them are near


@dataclass(frozen=True)
class Duplicate:
    """A member of a group: its nearest other item there, and their cosine similarity."""

    group: int
    id: str
    nearest: str
    score: float
    metadata: dict[str, Any]


def near_duplicates(index: Index, threshold: float = 0.95, progress: Progress | None = None) -> list[list[Duplicate]]:
    """Return the groups of items that a chain of similarities of at least ``threshold`` joins, the largest first.

    Items are searched for in batches, so memory grows only with what is found, not with the collection. An exact index
    finds every pair, except that an item with over 1,000 near ones links to the nearest 999.
    """
    if not 0 < threshold <= 1:
        raise UsageError(f"The threshold is a cosine similarity above 0 and up to 1, not {threshold}.")
    links: dict[str, str] = {}
    nearest: dict[str, tuple[str, float]] = {}
    metadata: dict[str, dict[str, Any]] = {}
    total = -(-len(index) // _BATCH)
    batches = index.backend.items(_BATCH)
    for batch in progress(batches, total) if progress else batches:
        for item, near in zip(batch, _near(index, batch, threshold), strict=True):
            if near:
                nearest[item.id], metadata[item.id] = near[0], item.metadata
                for other, _ in near:
                    _join(links, item.id, other)
    groups: dict[str, list[str]] = {}
    for name in sorted(nearest):
        groups.setdefault(_root(links, name), []).append(name)
    ordered = sorted(groups.values(), key=lambda names: (-len(names), names[0]))
    return [
        [Duplicate(number, name, *nearest[name], metadata[name]) for name in names]
        for number, names in enumerate(ordered, 1)
    ]


def write_duplicates(groups: list[list[Duplicate]], path: str | Path) -> None:
    """Write groups as CSV: group, id, path, label, nearest, score."""
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["group", "id", "path", "label", "nearest", "score"])
        for one in (each for group in groups for each in group):
            path_of, label = one.metadata.get("path", ""), one.metadata.get("label", "")
            writer.writerow([one.group, one.id, path_of, label, one.nearest, f"{one.score:.6f}"])


def _near(index: Index, batch: list[Item], threshold: float) -> list[list[tuple[str, float]]]:
    """Return the near items of each item, nearest first; ask for more where all results are near."""
    answers: list[list[tuple[str, float]]] = [[] for _ in batch]
    waiting, k = list(range(len(batch))), min(_FIRST_LOOK, index.most_results)
    while waiting:
        found = index.search(np.stack([batch[i].vector for i in waiting]), k, with_metadata=False)
        again: list[int] = []
        for place, hits in zip(waiting, found, strict=True):
            near = [(hit.id, hit.score) for hit in hits if hit.score >= threshold]
            answers[place] = [pair for pair in near if pair[0] != batch[place].id]
            if len(near) == k and k < index.most_results:
                again.append(place)
        waiting, k = again, min(8 * k, index.most_results)
    return answers


def _root(links: dict[str, str], name: str) -> str:
    while links.get(name, name) != name:
        links[name] = links.get(links[name], links[name])
        name = links[name]
    return name


def _join(links: dict[str, str], first: str, second: str) -> None:
    first, second = _root(links, first), _root(links, second)
    if first != second:
        links[max(first, second)] = min(first, second)
