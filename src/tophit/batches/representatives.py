"""Batches around class representatives: the batch construction of PROFS."""

from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from math import ceil
from typing import Annotated, Any

import numpy as np
import torch

from tophit.batches.deck import Deck
from tophit.batches.hard_classes import ClassBank
from tophit.errors import UsageError
from tophit.options import ClassMining, Count, Doc, Positive

READINGS = ("chain", "seeds", "pool")  # of hard negative class mining; checkpoints hold their places
DEFAULT_READING = "pool"
_GROUP = 4  # seeds: a dealt class and its nearest three
_POOL = 4  # pool: so many times the classes of a batch


def projection_steps(classes: int, batch_size: int, per_class: int, rho: float = 6.0) -> int:
    """Return M = ceil(rho / p), the steps of a projection (PROFS paper, Sec. 5.4).

    p = batch_size / (per_class * classes), at most 1, is the probability that a class is in a batch.
    """
    p = min(Fraction(1), Fraction(batch_size, per_class * classes))
    return ceil(Fraction(rho) / p)


def reading_of(hncm: bool | str) -> str | None:
    """Return the reading of hard negative class mining that an option means; None is without mining."""
    if isinstance(hncm, str) and hncm not in READINGS:
        raise UsageError(f"hncm is true, false, or one of {', '.join(READINGS)}: got {hncm!r}.")
    return hncm if isinstance(hncm, str) else DEFAULT_READING if hncm else None


class RepresentativeBatchSampler:
    """Batches of ``classes`` classes with ``per_class`` images each, including each class's representative.

    A projection is M = ceil(rho / p) batches during which every class keeps one representative; the next projection
    takes the next representative from a shuffled queue of the class. The other images of a class come from a second
    queue, so all of them are shown. In a batch, the images of a class are adjacent, its representative first, and no
    image appears twice. A class with fewer than ``per_class`` images contributes all of them; a class with one image
    contributes only its representative. ``steps`` sets M directly.

    Classes are dealt from a shuffled deck, each once before any is repeated. Hard negative class mining, ``hncm``,
    makes batches of classes that are near each other, by the embeddings that ``update`` stored. The paper gives no
    rule, but its rho says that a projection uses every class about rho times. The readings:

    - ``pool``: the next classes of the deck, four times as many as a batch takes, are a random pool. The first of them
      is taken, then greedily the one nearest to any taken. The others stay in the deck, so dealing stays as even as
      without mining; the last batch of a deck takes what is left.
    - ``seeds``: a quarter of the classes are dealt, each with the three nearest classes (with fewer if rho is below 4).
      Every projection begins a new deck. A class that was used 2 rho times in a projection is near to nobody.
    - ``chain``: only the first class is dealt, then greedily the class nearest to any taken, of all. This uses classes
      very unevenly. Checkpoints of before the other readings go on with it.

    ``hncm=True`` is ``pool``. A class without a stored embedding is not mined; places that mining can't fill are dealt.
    ``class_use`` counts in how many batches of this projection each class was; it is None while that is not known.

    It is one endless stream: iterating gives the next ``len(self)`` batches, which together show as many images as
    the set has. ``state_dict`` holds the position in the stream; each batch is drawn on demand, never in advance.
    ``projection`` counts from 0 and ``step`` from 1; both belong to the batch drawn last.
    """

    def __init__(
        self,
        labels: Sequence[Hashable],
        classes: int,
        per_class: int,
        seed: int = 0,
        rho: Annotated[
            Positive, Doc("How often a representative is used before it is replaced: M = ceil(rho / p) steps.")
        ] = 6.0,
        steps: Annotated[Count | None, Doc("M directly, instead of rho.")] = None,
        hncm: Annotated[
            ClassMining,
            Doc(
                "Hard negative class mining: batches of classes whose representatives are near. pool: nearest ones of "
                "a random pool; seeds: random ones, each with its nearest; chain: nearest of all, uneven; true: pool."
            ),
        ] = False,
    ) -> None:
        if classes < 1 or per_class < 1 or rho <= 0:
            raise UsageError(
                f"A batch needs at least 1 class and 1 image per class, and rho above 0: got {classes} classes x "
                f"{per_class} images, rho {rho}."
            )
        self.reading = reading_of(hncm)
        rows: dict[Hashable, list[int]] = {}
        for row, label in enumerate(labels):
            rows.setdefault(label, []).append(row)
        if not rows:
            raise UsageError("There are no images to form batches from.")
        count = len(rows)
        self.classes = min(classes, count)
        self.per_class = per_class
        self.seed = seed
        self.epoch = 0  # the other samplers need it; this one's stream simply continues
        self.is_stream = True
        self.steps_per_projection = steps or projection_steps(count, self.classes * per_class, per_class, rho)
        self.class_of_row = np.empty(len(labels), dtype=np.int64)
        for number, members in enumerate(rows.values()):
            self.class_of_row[members] = number
        self.bank = None if self.reading is None else ClassBank(count)
        self.class_use: np.ndarray | None = None
        self.drawn = 0
        self.projection = -1
        self.step = self.steps_per_projection
        generator = self._generator()
        self._coming = ClassQueues(list(rows.values()), generator)
        self._fresh = ClassQueues(list(rows.values()), generator)
        self._deck = Deck(count, generator)
        self.representatives = np.full(count, -1, dtype=np.int64)

    def __len__(self) -> int:
        """Return the number of batches in an epoch: enough to show as many images as the set has."""
        return -(-len(self.class_of_row) // (self.classes * self.per_class))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the next epoch's batches: lists of row numbers."""
        for _ in range(len(self)):
            yield self.next_batch()

    def next_batch(self) -> list[int]:
        """Return the rows of the next batch; a new projection begins when the previous one has taken its steps."""
        self.drawn += 1
        generator = self._generator()
        if self.step == self.steps_per_projection:
            self.projection, self.step = self.projection + 1, 0
            self.representatives = self._coming.next_of_every(generator)
            self.class_use = np.zeros(len(self.representatives), dtype=np.int64)
            if self.reading == "seeds":
                self._deck.shuffle(generator)
        self.step += 1
        chosen = self._choose(generator)
        if self.class_use is not None:
            self.class_use[chosen] += 1
        batch: list[int] = []
        for number in chosen:
            representative = int(self.representatives[number])
            batch += [representative, *self._fresh.take(number, self.per_class - 1, representative, generator)]
        return batch

    def is_representative(self, rows: np.ndarray) -> np.ndarray:
        """Return which of the rows (n,) are currently their class's representative."""
        return self.representatives[self.class_of_row[rows]] == rows

    def update(self, rows: np.ndarray, embeddings: np.ndarray) -> None:
        """Store the embeddings (n, d) of representatives (n,) that have passed through the network."""
        if self.bank is not None:
            self.bank.store(self.class_of_row[rows], embeddings)

    def _choose(self, generator: np.random.Generator) -> list[int]:
        """Return the classes of a batch."""
        chosen: list[int] = []
        if self.bank is not None:
            ways = {"seeds": self._around_seeds, "pool": self._in_a_pool, "chain": self._along_a_chain}
            chosen = ways[self.reading or DEFAULT_READING](self.bank, generator)
        return self._deck.deal(chosen, self.classes, generator)

    def _around_seeds(self, bank: ClassBank, generator: np.random.Generator) -> list[int]:
        """Return dealt classes and the nearest few of each."""
        use = self.steps_per_projection * self.classes / len(self.representatives)  # rho, or what the steps make of it
        group = max(2, min(_GROUP, int(use)))
        seeds = self._deck.deal([], -(-self.classes // group), generator)
        tired = None if self.class_use is None else self.class_use >= max(2, 2 * use)
        return seeds + bank.neighbours(seeds, self.classes - len(seeds), tired)

    def _in_a_pool(self, bank: ClassBank, generator: np.random.Generator) -> list[int]:
        """Return a dealt class and greedily the nearest in the pool; at the deck's end, all that is left and those."""
        if len(self._deck.left) < self.classes:
            chosen = self._deck.left.tolist()
            self._deck.shuffle(generator)
        else:
            chosen = self._deck.deal([], 1, generator)
        pool = self._deck.left[: _POOL * self.classes]
        near = bank.nearest_of(pool[~np.isin(pool, chosen)], chosen, self.classes - len(chosen))
        self._deck.pick(near)
        return chosen + near

    def _along_a_chain(self, bank: ClassBank, generator: np.random.Generator) -> list[int]:
        """Return a dealt class and greedily the nearest of all."""
        chosen = self._deck.deal([], 1, generator)
        return bank.near(chosen[0], self.classes) or chosen

    def _generator(self) -> np.random.Generator:
        """Return the generator for one draw: it depends only on seed and count, so it has no state to save."""
        return np.random.default_rng((self.seed, self.drawn))

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the stream, as tensors and plain values."""
        arrays = {
            "representatives": self.representatives,
            "deck": self._deck.order,
            "coming": self._coming.order,
            "coming_position": self._coming.position,
            "fresh": self._fresh.order,
            "fresh_position": self._fresh.position,
        }
        return {
            "counts": [self.drawn, self.projection, self.step, self._deck.dealt],
            "reading": None if self.reading is None else READINGS.index(self.reading),
            "class_use": None if self.class_use is None else torch.from_numpy(self.class_use).clone(),
            "bank": None if self.bank is None else self.bank.state_dict(),
            **{name: torch.from_numpy(array).clone() for name, array in arrays.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned, now or before there were readings of class mining: then on as then."""
        self.drawn, self.projection, self.step, self._deck.dealt = state["counts"]
        self.representatives, self._deck.order = (state[name].numpy().copy() for name in ("representatives", "deck"))
        use = state.get("class_use")
        self.class_use = None if use is None else use.numpy().copy()
        for name, queues in (("coming", self._coming), ("fresh", self._fresh)):
            queues.order, queues.position = state[name].numpy().copy(), state[f"{name}_position"].numpy().copy()
        if self.bank is not None:
            self.reading = READINGS[state.get("reading", 0)]
            self.bank.load_state_dict(state["bank"])


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
