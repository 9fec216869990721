"""Batches in which every image comes once per epoch: balanced (P classes times K images) or random."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Annotated

import numpy as np

from tophit.errors import UsageError
from tophit.options import Count, Doc
from tophit.registry import register

Group = list[int]


@register("sampler", "balanced")
class BalancedBatchSampler:
    """Batches of ``classes`` different classes with ``per_class`` images each.

    In an epoch every image is used once, as far as class sizes allow: each class is shuffled and cut into groups of
    ``per_class``; groups are then dealt to batches so that no batch holds two groups of a class. If a class size is
    not a multiple of ``per_class``, the remaining images form a smaller group, so a batch holds at most
    ``classes * per_class`` images and no image twice. A group has at least two images unless its class has only one;
    with ``per_class=2`` a class of odd size therefore shows one image twice in the epoch.
    With ``repeat_small_classes`` a smaller group is filled up to ``per_class`` instead, first with other images
    of its class, then, if the class is smaller than ``per_class``, by repeating its images inside the batch.

    ``labels`` may be strings or any integers. ``seed`` and ``epoch`` fix the batches of an epoch.
    """

    def __init__(
        self,
        labels: Sequence[Hashable],
        classes: Annotated[Count, Doc("Classes in a balanced batch.")] = 32,
        per_class: Annotated[Count, Doc("Images of each class in a balanced batch.")] = 4,
        seed: int = 0,
        repeat_small_classes: Annotated[
            bool, Doc("Fill groups up to per_class, repeating the images of smaller classes.")
        ] = False,
    ) -> None:
        if classes < 1 or per_class < 1:
            raise UsageError(
                f"A batch needs at least 1 class and 1 image per class: got {classes} classes x {per_class} images."
            )
        rows: dict[Hashable, list[int]] = {}
        for row, label in enumerate(labels):
            rows.setdefault(label, []).append(row)
        if not rows:
            raise UsageError("There are no images to form batches from.")
        self.rows_of_class = list(rows.values())
        self.classes = min(classes, len(self.rows_of_class))
        self.per_class = per_class
        self.seed = seed
        self.repeat_small_classes = repeat_small_classes
        self.epoch = 0
        self._length = len(self._deal(np.random.default_rng(0)))

    def __len__(self) -> int:
        """Return the number of batches in an epoch (the same in every epoch)."""
        return self._length

    def __iter__(self) -> Iterator[list[int]]:
        """Yield lists of row numbers."""
        generator = np.random.default_rng((self.seed, self.epoch))
        for groups in self._deal(generator):
            yield [row for group in groups for row in group]

    def _deal(self, generator: np.random.Generator) -> list[list[Group]]:
        """Deal each class's groups to different batches, the classes with the most groups first.

        Each class takes the batches that are emptiest so far (ties at random), so the batches end up equally full.
        """
        groups_of_class = [self._groups(rows, generator) for rows in self.rows_of_class]
        total = sum(len(groups) for groups in groups_of_class)
        batches = max(-(-total // self.classes), max(len(groups) for groups in groups_of_class))
        dealt: list[list[Group]] = [[] for _ in range(batches)]
        filled = np.zeros(batches, dtype=np.int64)
        order = generator.permutation(len(groups_of_class))
        for index in sorted(order, key=lambda i: -len(groups_of_class[i])):
            groups = groups_of_class[index]
            emptiest = np.lexsort((generator.random(batches), filled))[: len(groups)]
            filled[emptiest] += 1
            for batch, group in zip(emptiest, groups, strict=True):
                dealt[batch].append(group)
        return [dealt[i] for i in generator.permutation(batches)]

    def _groups(self, rows: list[int], generator: np.random.Generator) -> list[Group]:
        shuffled = [rows[i] for i in generator.permutation(len(rows))]
        groups = [shuffled[i : i + self.per_class] for i in range(0, len(shuffled), self.per_class)]
        last = groups[-1]
        if self.repeat_small_classes and len(last) < self.per_class:
            spare = shuffled[: -len(last)] + last  # other images of the class first, then this group's own
            groups[-1] = last + [spare[i % len(spare)] for i in range(self.per_class - len(last))]
        elif len(last) == 1 < self.per_class and len(groups) > 1:  # a single image has no positive in its batch
            last.append(groups[-2].pop() if self.per_class > 2 else shuffled[0])
        return groups


@register("sampler", "random")
class RandomBatchSampler:
    """Shuffled batches of ``size`` images; the last may be smaller. ``epoch`` and ``seed`` fix the order."""

    def __init__(
        self, images: int, size: Annotated[Count, Doc("Images in a random batch.")] = 128, seed: int = 0
    ) -> None:
        if images < 1 or size < 1:
            raise UsageError(f"A batch needs at least one image: got {images} images and batches of {size}.")
        self.images = images
        self.size = size
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return -(-self.images // self.size)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield lists of row numbers."""
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.images)
        for start in range(0, self.images, self.size):
            yield order[start : start + self.size].tolist()
