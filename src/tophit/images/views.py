"""Random views of training images as the papers describe them: crops and mirroring, drawn per image."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from PIL import Image

from tophit.images.preprocessing import Preprocessing, ViewBox, resized

_GREY = torch.tensor([0.299, 0.587, 0.114])  # what red, green and blue add to grey (ITU-R 601)
_ERASED_AREA, _ERASED_RATIO = (0.02, 0.33), 0.3  # share of the view, and least height / width, as in the paper
_TRIES = 10  # random shapes to try before falling back to a crop that fits


@dataclass(frozen=True)
class Augmentation:
    """Random views for training, drawn per image from (seed, epoch, row): independent of workers and order.

    ``crop`` says which part of the picture is shown. ``view``: a share ``scale`` of the evaluation view's area, in its
    shape. ``random``: the picture is scaled as for evaluation, and a window of the input's size is taken anywhere in
    it. ``random-resized``: a share ``scale`` of the picture's area, with a width-to-height ratio in ``ratio``.
    ``jitter`` changes brightness, contrast and saturation, each by a factor of 1 - jitter to 1 + jitter. ``erase`` is
    the chance that a rectangle of the view is replaced by noise.
    """

    seed: int
    scale: tuple[float, float] = (1.0, 1.0)
    flip: bool = False
    crop: Literal["view", "random", "random-resized"] = "view"
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    jitter: float = 0.0
    erase: float = 0.0

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
    if mirrored:
        pixels = torch.from_numpy(pixels).flip(1).numpy()  # numpy takes ten times as long
    if augmentation.jitter:
        pixels = jittered(pixels, *generator.uniform(1 - augmentation.jitter, 1 + augmentation.jitter, 3))
    if augmentation.erase and generator.uniform() < augmentation.erase:
        pixels = _erased(pixels, generator)
    return pixels


def jittered(pixels: np.ndarray, brightness: float, contrast: float, saturation: float) -> np.ndarray:
    """Return 8-bit pixels (H, W, 3) with changed brightness, then contrast, then saturation; 1 changes nothing.

    Contrast is the distance from the picture's mean grey, saturation the distance from each pixel's own grey.
    """
    values = (torch.from_numpy(pixels).float() * brightness).clamp_(0, 255)
    values = torch.lerp((values @ _GREY).mean(), values, contrast).clamp_(0, 255)
    values = torch.lerp((values @ _GREY)[:, :, None], values, saturation)
    return values.round_().clamp_(0, 255).to(torch.uint8).numpy()


def _erased(pixels: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the pixels with noise in a random rectangle (Zhong et al., "Random Erasing", AAAI 2020)."""
    height, width = pixels.shape[:2]
    area = height * width * generator.uniform(*_ERASED_AREA)
    ratio = math.exp(generator.uniform(math.log(_ERASED_RATIO), -math.log(_ERASED_RATIO)))
    high, wide = min(height, round(math.sqrt(area * ratio))), min(width, round(math.sqrt(area / ratio)))
    top, left = generator.integers(height - high + 1), generator.integers(width - wide + 1)
    erased = pixels.copy()
    erased[top : top + high, left : left + wide] = generator.integers(256, size=(high, wide, 3), dtype=np.uint8)
    return erased


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
