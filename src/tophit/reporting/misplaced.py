"""Which images are inside another class, by their vectors alone."""

from dataclasses import dataclass

import numpy as np

MOST = 10_000  # found at a time; a collapsed embedder would report millions
_COUNTED = 2  # nearest images of a class that define how near the class is
_BLOCK = 2048  # images judged at a time


@dataclass(frozen=True)
class Neighbours:
    """The k nearest other images of each of N images, best first: row numbers (N, k) and cosine similarities (N, k)."""

    rows: np.ndarray
    similarity: np.ndarray


@dataclass(frozen=True)
class Misplaced:
    """A row inside another class: its nearest row there, its similarity to that class and to its own.

    ``share`` is the part of its nearest neighbours that are of that class.
    """

    row: int
    nearest: int
    other: float
    own: float
    share: float

    @property
    def score(self) -> float:
        """How clear it is, from 0 to 1: how much of the way to a perfect match lies between both classes, times share.

        The difference of the similarities alone puts classes that look alike first: their images are all similar.
        """
        return (self.other - self.own) / max(1e-6, 1 - self.own) * self.share


def nearer_to_another_class(
    vectors: np.ndarray, neighbours: Neighbours, classes: np.ndarray, memory_budget: int
) -> list[Misplaced]:
    """Return the images with unit vectors (N, d) that are inside another class, the clearest first.

    The nearness of an image to a class is its mean similarity to its 2 nearest images there (its own class may have
    only one other). Those of another class must be among its 10 nearest neighbours. An image is reported if

    1. another class is nearer than its own,
    2. it is at least as near to that class as a quarter of that class's own images are,
    3. three quarters of its own class's images are at least as near to their class as it is.

    The last two exclude classes that the embedder confuses as a whole, where every image is near to both.
    An image that is alone in its class is not checked.
    """
    own = _own_similarity(vectors, classes, _COUNTED, memory_budget)
    usual = _lower_quartiles(own, classes, int(classes.max()) + 1)
    found: list[Misplaced] = []
    for start in range(0, len(classes), _BLOCK):
        part = slice(start, start + _BLOCK)
        near, similarity = neighbours.rows[part], neighbours.similarity[part]
        labels = classes[near]
        until = np.tril(labels[:, :, None] == labels[:, None, :])  # [i, k, j]: j is of k's class and not after it
        whole = (until.sum(axis=2) == _COUNTED) & (labels != classes[part, None])
        means = np.where(whole, (until * similarity[:, None, :]).sum(axis=2) / _COUNTED, -np.inf)
        best = means.argmax(axis=1)
        every = np.arange(len(best))
        other, winner = means[every, best], labels[every, best]
        mine = own[part]
        wrong = (other > mine) & (other >= usual[winner]) & (mine <= usual[classes[part]])  # NaN compares as false
        for i in np.flatnonzero(wrong):
            nearest = near[i, np.argmax(labels[i] == winner[i])]
            share = float(np.mean(labels[i] == winner[i]))
            found.append(Misplaced(start + int(i), int(nearest), float(other[i]), float(mine[i]), share))
    return sorted(found, key=lambda one: (-one.score, one.row))[:MOST]


def _own_similarity(vectors: np.ndarray, classes: np.ndarray, count: int, memory_budget: int) -> np.ndarray:
    """Return each image's mean similarity (N,) to the ``count`` nearest others of its class (fewer if it is small).

    It is NaN for an image that is alone in its class. ``classes`` (N,) are integers from 0.
    """
    found = np.full(len(vectors), np.nan, np.float32)
    order = np.argsort(classes, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(classes[order])) + 1):
        others = min(count, len(members) - 1)
        if others == 0:
            continue
        own = vectors[members]
        step = max(1, memory_budget // (4 * own.itemsize * len(members)))
        for start in range(0, len(members), step):
            scores = own[start : start + step] @ own.T
            inside = np.arange(len(scores))
            scores[inside, start + inside] = -np.inf
            best = -np.partition(-scores, others - 1, axis=1)[:, :others]
            found[members[start : start + step]] = best.mean(axis=1)
    return found


def _lower_quartiles(values: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """Return the lower quartile (count,) of each class's values without NaN; NaN for a class without values."""
    found = np.full(count, np.nan)
    order = np.argsort(classes, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(classes[order])) + 1):
        known = values[members][~np.isnan(values[members])]
        if len(known):
            found[classes[members[0]]] = np.quantile(known, 0.25)
    return found
