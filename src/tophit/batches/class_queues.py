"""A shuffled queue of images for each class, refilled when it is empty."""

from collections.abc import Sequence

import numpy as np


class ClassQueues:
    """Gives each class's rows in a random order, all of them before any is repeated.

    ``rows_of_class`` lists the rows of each class. A refilled queue never begins with the row that ended the
    previous one, unless the class has only that row.
    """

    def __init__(self, rows_of_class: Sequence[Sequence[int]], generator: np.random.Generator) -> None:
        self.sizes = np.array([len(rows) for rows in rows_of_class])
        self.starts = self.sizes.cumsum() - self.sizes
        self.order = np.concatenate([np.asarray(rows, dtype=np.int64) for rows in rows_of_class])
        self.class_of_place = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.position = np.zeros(len(self.sizes), dtype=np.int64)
        self._shuffle(np.ones(len(self.sizes), dtype=bool), generator)

    def next_of_every(self, generator: np.random.Generator) -> np.ndarray:
        """Return the next row of each class (L,)."""
        empty = self.position >= self.sizes
        if empty.any():
            self._refill(empty, generator)
        rows = self.order[self.starts + self.position]
        self.position += 1
        return rows

    def take(self, number: int, count: int, skip: int, generator: np.random.Generator) -> list[int]:
        """Return the next ``count`` rows of one class, each once, without ``skip``; fewer if the class is too small."""
        start, size = self.starts[number], self.sizes[number]
        taken: list[int] = []
        while len(taken) < min(count, size - 1):
            if self.position[number] >= size:
                generator.shuffle(self.order[start : start + size])
                self.position[number] = 0
            row = int(self.order[start + self.position[number]])
            self.position[number] += 1
            if row != skip and row not in taken:
                taken.append(row)
        return taken

    def _refill(self, chosen: np.ndarray, generator: np.random.Generator) -> None:
        first, last = self.starts[chosen], self.starts[chosen] + self.sizes[chosen] - 1
        before = self.order[last]
        self._shuffle(chosen, generator)
        again = self.order[first] == before
        first, last = first[again], last[again]
        self.order[first], self.order[last] = self.order[last], self.order[first]
        self.position[chosen] = 0

    def _shuffle(self, chosen: np.ndarray, generator: np.random.Generator) -> None:
        """Shuffle the queues of the chosen classes (a mask), all at once."""
        places = chosen[self.class_of_place].nonzero()[0]
        by_class_then_random = np.lexsort((generator.random(len(places)), self.class_of_place[places]))
        self.order[places] = self.order[places[by_class_then_random]]
