"""Hard negative class mining: find classes that are near each other, by one stored embedding per class."""

from typing import Any

import numpy as np
import torch

# How many classes greedy selection considers after the first pass; with no more classes than this it is exact.
_POOL = 1024


class ClassBank:
    """One embedding per class, from its last pass through the network (PROFS paper, Sec. 4).

    A class that has not been seen yet has no embedding and is never selected. Embeddings become stale between visits,
    and after a change of representatives they still belong to the old one. This is accepted: they are updated when
    the class is next used.
    """

    def __init__(self, classes: int) -> None:
        self.filled = np.zeros(classes, dtype=bool)
        self.vectors = np.zeros((classes, 0), dtype=np.float32)
        self.norms = np.full(classes, np.inf, dtype=np.float32)

    def store(self, classes: np.ndarray, vectors: np.ndarray) -> None:
        """Update the embeddings (n, d) of some classes (n,)."""
        if not self.vectors.shape[1]:
            self.vectors = np.zeros((len(self.filled), vectors.shape[1]), dtype=np.float32)
        self.vectors[classes] = vectors
        self.norms[classes] = np.square(vectors).sum(axis=1)
        self.filled[classes] = True

    def near(self, seed: int, count: int) -> list[int]:
        """Return up to ``count`` classes: the seed, then greedily the class nearest to any selected one.

        One pass over all classes finds those nearest to the seed; the selection is greedy among the first 1024 of them,
        so it is exact up to that many classes. Ties go to the lower class number. The list is empty if the seed has no
        embedding yet.
        """
        return [] if not self.filled[seed] else nearest_classes(self.vectors, self.norms, seed, count)

    def nearest_of(self, pool: np.ndarray, chosen: list[int], count: int) -> list[int]:
        """Return up to ``count`` classes of the pool: greedily the one nearest to any chosen or selected one.

        Chosen classes without an embedding attract nobody; if none has one, the list is empty.
        """
        known = [number for number in chosen if self.filled[number]]
        pool = np.sort(pool[self.filled[pool]])  # ties go to the lower class number
        if not known or not len(pool):
            return []
        points, lengths = self.vectors[pool], self.norms[pool]
        nearest = (self.norms[known][:, None] - 2 * self.vectors[known] @ points.T).min(axis=0) + lengths
        return pool[_greedy(points, lengths, nearest, count)].tolist()

    def neighbours(self, seeds: list[int], count: int, without: np.ndarray | None = None) -> list[int]:
        """Return up to ``count`` classes near to the seeds: the nearest one of each seed, then the next of each, ...

        No class is returned twice, nor one of the mask ``without`` (L,). One pass over all classes, ties to the lower
        class number. Seeds without an embedding have no neighbours.
        """
        known = [number for number in seeds if self.filled[number]]
        if not known:
            return []
        allowed = self.norms if without is None else np.where(without, np.inf, self.norms)
        distances = self.vectors[known] @ self.vectors.T  # squared, up to a constant of each seed
        distances *= -2
        distances += allowed
        distances[:, seeds] = np.inf
        # If some seeds have no embedding, their neighbours' places are not for the others.
        count = count * len(known) // len(seeds)
        selected: list[int] = []
        while len(selected) < count:
            row = len(selected) % len(known)
            best = int(distances[row].argmin())
            if not np.isfinite(distances[row, best]):
                break
            selected.append(best)
            distances[:, best] = np.inf
        return selected

    def state_dict(self) -> dict[str, Any]:
        """Return the stored embeddings."""
        return {name: torch.from_numpy(getattr(self, name)).clone() for name in ("filled", "vectors", "norms")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        for name, value in state.items():
            setattr(self, name, value.numpy().copy())


def nearest_classes(vectors: np.ndarray, norms: np.ndarray, seed: int, count: int) -> list[int]:
    """Return the seed and the classes selected greedily by the distance to the nearest selected one.

    ``vectors`` is (L, d); ``norms`` (L,) holds their squared lengths, infinite for a class that must not be selected.
    """
    to_seed = norms - 2 * (vectors @ vectors[seed])  # the squared distance up to a constant
    to_seed[seed] = np.inf
    pool = np.arange(len(to_seed))
    if len(pool) > _POOL + 1:
        pool = np.sort(np.argpartition(to_seed, _POOL)[:_POOL])
    pool = pool[np.isfinite(to_seed[pool])]
    points, lengths = vectors[pool], norms[pool]
    nearest = to_seed[pool] + norms[seed]
    return [seed, *pool[_greedy(points, lengths, nearest, count - 1)].tolist()]


def _greedy(points: np.ndarray, lengths: np.ndarray, nearest: np.ndarray, count: int) -> list[int]:
    """Return the places of up to ``count`` points, selected greedily by the distance to the nearest selected one.

    Points (n, d), their squared lengths (n,) and squared distances to those selected before (n,); the latter two are
    changed.
    """
    selected: list[int] = []
    for _ in range(min(count, len(points))):
        best = int(nearest.argmin())
        selected.append(best)
        np.minimum(nearest, lengths - 2 * (points @ points[best]) + lengths[best], out=nearest)
        lengths[best] = nearest[best] = np.inf  # never again
    return selected
