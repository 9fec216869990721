"""How far a list of label problems can be trusted on one's own images: wrong labels are planted and looked for.

A share of the labels is changed on purpose, several times over. The suspects that are then found are either planted or
were suspects already. So the share of planted ones is the precision the list would have if that many labels were wrong,
and no image that was a suspect already were: real errors among those make it too low, never too high.
"""

from dataclasses import dataclass

import numpy as np

from tophit.reporting.misplaced import Neighbours, nearer_to_another_class

_SHARE = 0.02  # of the labels that are changed
_LEAST, _MOST = 10, 200  # labels changed at a time
_TIMES = 5
_FEWEST = 10  # suspects that a precision is measured on
_IMAGES_EACH = 3  # a class with fewer is left alone: one image alone in its class is not judged


@dataclass(frozen=True)
class Planted:
    """What was found of planted errors: the scores (n,) of all suspects, best first, and which were planted (n,).

    ``changed`` labels were wrong each time, ``times`` times over.
    """

    scores: np.ndarray
    hits: np.ndarray
    changed: int
    times: int

    @property
    def precision(self) -> float:
        """The part of planted ones among as many first suspects as labels were changed."""
        return self._share_of(self.changed * self.times)

    @property
    def recall(self) -> float:
        """The part of the changed labels that is among the suspects."""
        return float(self.hits.sum() / (self.changed * self.times))

    def precision_of(self, score: float) -> float:
        """Return the part of planted ones among suspects that are at least as clear as a score."""
        return self._share_of(max(_FEWEST, int((self.scores >= score).sum())))

    def _share_of(self, first: int) -> float:
        return float(self.hits[:first].mean()) if len(self.hits) else 0.0


def plant_errors(
    vectors: np.ndarray, neighbours: Neighbours, classes: np.ndarray, memory_budget: int, seed: int = 0
) -> Planted | None:
    """Change labels of images with unit vectors (N, d) and classes (N,) from 0, and look for them.

    Every other one gets the label of the most similar other class, as a person may confuse them, the rest that of any
    other class. None where fewer than ten labels can be changed.
    """
    sizes = np.bincount(classes)
    possible = np.flatnonzero(sizes[classes] >= _IMAGES_EACH)
    changed = int(np.clip(round(_SHARE * len(classes)), _LEAST, _MOST))
    if len(possible) < 4 * changed or len(sizes) < 3:
        return None
    similar = _most_similar_class(vectors, classes)
    found: list[tuple[float, bool]] = []
    for time in range(_TIMES):
        generator = np.random.default_rng((seed, time))
        wrong = generator.choice(possible, changed, replace=False)
        spoilt = classes.copy()
        spoilt[wrong] = (classes[wrong] + generator.integers(1, len(sizes), changed)) % len(sizes)
        spoilt[wrong[::2]] = similar[wrong[::2]]
        planted = set(wrong.tolist())
        suspects = nearer_to_another_class(vectors, neighbours, spoilt, memory_budget)
        found += [(one.score, one.row in planted) for one in suspects]
    found.sort(key=lambda one: -one[0])
    return Planted(np.asarray([s for s, _ in found]), np.asarray([h for _, h in found], bool), changed, _TIMES)


def _most_similar_class(vectors: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return for each image (N,) the class other than its own whose mean is most similar to it."""
    means = np.zeros((int(classes.max()) + 1, vectors.shape[1]), np.float32)
    np.add.at(means, classes, vectors)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    found = np.empty(len(classes), classes.dtype)
    for start in range(0, len(classes), 2048):
        part = slice(start, start + 2048)
        scores = vectors[part] @ means.T
        scores[np.arange(len(scores)), classes[part]] = -np.inf
        found[part] = scores.argmax(axis=1)
    return found
