"""Balanced batches of images with several labels: each image is dealt under one of its labels, the rare ones first."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Annotated

import numpy as np

from tophit.batches.balanced import BalancedBatchSampler
from tophit.options import Count, Doc
from tophit.registry import register
from tophit.wording import counted


@register("sampler", "balanced-labels")
class LabelBatchSampler(BalancedBatchSampler):
    """Batches of ``classes`` different labels with ``per_class`` images that have each of them.

    ``sets`` are the labels of every image. Each image is dealt under one of its labels, its leading label. So every
    image comes once per epoch as far as the numbers allow (see ``BalancedBatchSampler``), and rare labels lead as many
    images as they can. Which label leads an image changes with the epoch: two images swap if each also has the other's
    label, so every label leads as many images as before. ``seed`` and ``epoch`` fix the batches of an epoch.
    """

    def __init__(
        self,
        sets: Sequence[Sequence[Hashable]],
        classes: Annotated[Count, Doc("Classes in a balanced batch.")] = 32,
        per_class: Annotated[Count, Doc("Images of each class in a balanced batch.")] = 4,
        seed: int = 0,
        repeat_small_classes: Annotated[
            bool, Doc("Fill groups up to per_class, repeating the images of smaller classes.")
        ] = False,
    ) -> None:
        self.sets = [frozenset(each) for each in sets]
        self.leading = leading_labels(sets, np.random.default_rng(seed))
        super().__init__(self.leading, classes, per_class, seed, repeat_small_classes)

    @property
    def coverage(self) -> str:
        """What an epoch shows, in a sentence."""
        sizes = sorted(map(len, self.rows_of_class))
        every = {label for each in self.sets for label in each}
        led = f"{counted(len(sizes), 'label')} lead {sizes[0]} to {sizes[-1]} of them each"
        rest = len(every) - len(sizes)
        others = f"; {counted(rest, 'further label')} come along with others" if rest else ""
        return f"Each epoch shows all {counted(len(self.sets), 'image')}: {led}{others}."

    def __iter__(self) -> Iterator[list[int]]:
        """Yield lists of row numbers."""
        generator = np.random.default_rng((self.seed, self.epoch, 1))
        rows: dict[Hashable, list[int]] = {}
        for row, label in enumerate(self._swapped(generator)):
            rows.setdefault(label, []).append(row)
        self.rows_of_class = [rows[label] for label in dict.fromkeys(self.leading)]
        return super().__iter__()

    def _swapped(self, generator: np.random.Generator) -> list[Hashable]:
        """Return the leading labels after random pairs of images have swapped theirs, where both have both."""
        leading = list(self.leading)
        for _ in range(2):
            order = generator.permutation(len(leading)).tolist()
            for one, other in zip(order[::2], order[1::2], strict=False):
                if leading[one] in self.sets[other] and leading[other] in self.sets[one]:
                    leading[one], leading[other] = leading[other], leading[one]
        return leading


def leading_labels(sets: Sequence[Sequence[Hashable]], generator: np.random.Generator) -> list[Hashable]:
    """Return one label of each image: of its labels, the one that leads the fewest images so far.

    Images with few labels, which have little choice, come first.

    >>> leading_labels([["red", "shoe"], ["red"], ["red", "shoe"]], np.random.default_rng(0))
    ['shoe', 'red', 'shoe']
    """
    images: dict[Hashable, int] = {}
    for each in sets:
        for label in each:
            images[label] = images.get(label, 0) + 1
    led = dict.fromkeys(images, 0)
    chosen: list[Hashable] = [None] * len(sets)
    for row in sorted(generator.permutation(len(sets)).tolist(), key=lambda row: len(sets[row])):
        best = min(sets[row], key=lambda label: (led[label], images[label], str(label)))
        led[best] += 1
        chosen[row] = best
    return chosen
