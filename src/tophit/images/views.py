"""Random views of training images as the papers describe them: crops and mirroring, drawn per image."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from PIL import Image

from tophit.images.preprocessing import Preprocessing, ViewBox, resized

_TRIES = 10  # random shapes to try before falling back to a crop that fits


@dataclass(frozen=True)
class Augmentation:
    """Random views for training, drawn per image from (seed, epoch, row): independent of workers and order.

    ``crop`` says which part of the picture is shown. ``view``: a share ``scale`` of the evaluation view's area, in its
    shape. ``random``: the picture is scaled as for evaluation, and a window of the input's size is taken anywhere in
    it. ``random-resized``: a share ``scale`` of the picture's area, with a width-to-height ratio in ``ratio``.
    """

    seed: int
    scale: tuple[float, float] = (1.0, 1.0)
    flip: bool = False
    crop: Literal["view", "random", "random-resized"] = "view"
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def generator(self, epoch: int, row: int) -> np.random.Generator:
        """Return the generator of one image's view in an epoch."""
        return np.random.default_rng((self.seed, epoch, row))

    def least_side(self, preprocessing: Preprocessing) -> int:
        """Return how long a picture's short side must be so that no view is scaled up."""
        if self.crop == "random":
            return preprocessing.least_side
        whole = preprocessing.least_side if self.crop == "view" else preprocessing.size
        return math.ceil(whole / math.sqrt(self.scale[0]))


def training_pixels(
    preprocessing: Preprocessing,
    image: Image.Image | np.ndarray,
    augmentation: Augmentation,
    generator: np.random.Generator,
) -> np.ndarray:
    """Return a random view of an RGB picture, Pillow's or an array (H, W, 3), as uint8 (size, size, 3)."""
    width, height = (image.shape[1], image.shape[0]) if isinstance(image, np.ndarray) else image.size
    box = _DRAW[augmentation.crop](preprocessing, width, height, augmentation, generator)
    pixels = resized(image, box, preprocessing.size)
    mirrored = augmentation.flip and generator.uniform() < 0.5
    return torch.from_numpy(pixels).flip(1).numpy() if mirrored else pixels  # numpy takes ten times as long


def _share_of_view(
    preprocessing: Preprocessing, width: int, height: int, augmentation: Augmentation, generator: np.random.Generator
) -> ViewBox:
    left, top, right, bottom = preprocessing.centre(width, height)
    side = math.sqrt(generator.uniform(*augmentation.scale))
    wide, high = side * (right - left), side * (bottom - top)
    x = left + generator.uniform() * (right - left - wide)
    y = top + generator.uniform() * (bottom - top - high)
    return x, y, x + wide, y + high


def _window_anywhere(
    preprocessing: Preprocessing, width: int, height: int, augmentation: Augmentation, generator: np.random.Generator
) -> ViewBox:
    wide, high = preprocessing.window(width, height)
    x, y = generator.uniform() * (width - wide), generator.uniform() * (height - high)
    return x, y, x + wide, y + high


def _share_of_picture(
    preprocessing: Preprocessing, width: int, height: int, augmentation: Augmentation, generator: np.random.Generator
) -> ViewBox:
    least, most = augmentation.ratio
    for _ in range(_TRIES):
        area = width * height * generator.uniform(*augmentation.scale)
        ratio = math.exp(generator.uniform(math.log(least), math.log(most)))
        wide, high = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if wide <= width and high <= height:
            x, y = generator.uniform() * (width - wide), generator.uniform() * (height - high)
            return x, y, x + wide, y + high
    wide, high = min(width, height * most), min(height, width / least)
    x, y = (width - wide) / 2, (height - high) / 2
    return x, y, x + wide, y + high


_DRAW = {"view": _share_of_view, "random": _window_anywhere, "random-resized": _share_of_picture}
