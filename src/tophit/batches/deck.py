"""A shuffled deck of class numbers: each is dealt once before any is dealt again."""

import numpy as np


class Deck:
    """The numbers 0 to ``count`` - 1 in a random order, shuffled again when all are dealt.

    ``order`` is the whole deck, and its first ``dealt`` numbers have been dealt.
    """

    def __init__(self, count: int, generator: np.random.Generator) -> None:
        self.order = generator.permutation(count)
        self.dealt = 0

    @property
    def left(self) -> np.ndarray:
        """The numbers that are not dealt yet, in their order."""
        return self.order[self.dealt :]

    def shuffle(self, generator: np.random.Generator) -> None:
        """Begin again with all numbers."""
        self.order, self.dealt = generator.permutation(len(self.order)), 0

    def deal(self, chosen: list[int], count: int, generator: np.random.Generator) -> list[int]:
        """Return the chosen numbers and the next ones of the deck, ``count`` in all, none of them twice."""
        chosen = list(chosen)
        taken = set(chosen)
        while len(chosen) < count:
            if not len(self.left):
                self.shuffle(generator)
            number = int(self.order[self.dealt])
            self.dealt += 1
            if number not in taken:
                chosen.append(number)
                taken.add(number)
        return chosen

    def pick(self, numbers: list[int]) -> None:
        """Deal these numbers, which must be among those left; the others keep their order."""
        left = self.left
        self.order[self.dealt :] = np.concatenate([numbers, left[~np.isin(left, numbers)]])
        self.dealt += len(numbers)
