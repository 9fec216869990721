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
    selected = [seed]
    for _ in range(min(count - 1, len(pool))):
        best = int(nearest.argmin())
        selected.append(int(pool[best]))
        np.minimum(nearest, lengths - 2 * (points @ points[best]) + lengths[best], out=nearest)
        lengths[best] = nearest[best] = np.inf  # never again
    return selected
