"""Random batches: every image once per epoch, in a random order."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np

from tophit.errors import UsageError
from tophit.options import Count, Doc
from tophit.registry import register


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
