"""From a picture to the numbers a backbone takes: crop, resize, normalise."""

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from tophit.images.resampling import resize

if TYPE_CHECKING:
    import torch

ViewBox = tuple[float, float, float, float]
VIEWS_VERSION = 2
"""Raised when the pixels of views change, so that features cached earlier are not mixed with new ones."""


@dataclass(frozen=True)
class Preprocessing:
    """What a backbone expects: a square of ``size`` pixels, RGB, each channel (value / 255 - mean) / std.

    The picture's short side is scaled to ``size / crop`` and the centre is cut out; ``crop=1`` keeps all of
    the short side. ``squash=True`` scales both sides to ``size / crop`` instead, ignoring the aspect ratio. ``mean``
    and ``std`` are in the order of ``channel_order``, RGB or BGR; a scale of 0 to 255 is a ``std`` of 1 / 255.
    """

    size: int = 224
    crop: float = 0.875
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    squash: bool = False
    channel_order: str = "RGB"

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Return the evaluation view of an RGB picture as float32 (3, size, size)."""
        pixels = self.pixels(image)
        values = pixels[:, :, ::-1] if self.channel_order == "BGR" else pixels
        scale, shift = self._linear()
        exact = values.astype(np.float64) * scale + shift  # rounded once, as torch's addcmul does
        return np.ascontiguousarray(exact.transpose(2, 0, 1), np.float32)

    def pixels(self, image: Image.Image | np.ndarray) -> np.ndarray:
        """Return the evaluation view of an RGB picture, Pillow's or an array (H, W, 3), as uint8 (size, size, 3)."""
        return resized(image, self.centre(*_size(image)), self.size)

    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        """Return scale and shift (3,), float32, of each channel."""
        scale = [1 / (255 * value) for value in self.std]
        shift = [-m / s for m, s in zip(self.mean, self.std, strict=True)]
        return np.asarray(scale, np.float32), np.asarray(shift, np.float32)

    def normalise(self, pixels: "torch.Tensor") -> "torch.Tensor":
        """Map uint8 views (N, size, size, 3) to float32 (N, 3, size, size), channels last in memory."""
        import torch

        numbers = torch.empty(pixels.shape, device=pixels.device)
        values = pixels.flip(3) if self.channel_order == "BGR" else pixels
        # One image at a time stays in the processor's cache, and a line of pixels is one vector: many times faster.
        images, width = len(pixels), pixels.shape[2]
        scale, shift = (torch.from_numpy(each).to(pixels.device).repeat(width) for each in self._linear())
        lines = images, -1, 3 * width
        for source, target in zip(values.reshape(lines), numbers.view(lines), strict=True):
            target.copy_(source)
            torch.addcmul(shift, target, scale, out=target)
        return numbers.permute(0, 3, 1, 2)

    def centre(self, width: int, height: int) -> ViewBox:
        """Return the part of a picture that the evaluation view shows."""
        wide, high = self.window(width, height)
        left, top = (width - wide) / 2, (height - high) / 2
        return left, top, left + wide, top + high

    def window(self, width: int, height: int) -> tuple[float, float]:
        """Return width and height of the view in pixels of a picture."""
        if self.squash:
            return width * self.crop, height * self.crop
        side = min(width, height) * self.crop
        return side, side

    @property
    def least_side(self) -> int:
        """How long a picture's short side must be so that nothing is scaled up."""
        return round(self.size / self.crop)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values; newer ones only if not the default, so that old digests stay valid."""
        fields = asdict(self)
        if self.channel_order == "RGB":
            del fields["channel_order"]
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Preprocessing":
        """Return the preprocessing that ``to_json`` described."""
        return cls(**{**fields, "mean": tuple(fields["mean"]), "std": tuple(fields["std"])})


def resized(image: Image.Image | np.ndarray, box: ViewBox, size: int | tuple[int, int]) -> np.ndarray:
    """Return a part of an RGB picture, rounded to whole pixels, as uint8 (height, width, 3).

    ``size`` is a side or (w, h). Bicubic with antialiasing like Pillow's, and equal to it within two levels of 255; by
    torch, which is several times faster, unless it would have to be imported for this.
    """
    pixels = np.asarray(image)
    height, width = pixels.shape[:2]
    left, top = min(round(box[0]), width - 1), min(round(box[1]), height - 1)
    right, bottom = max(left + 1, round(box[2])), max(top + 1, round(box[3]))
    part = np.array(pixels[top:bottom, left:right])
    wide, high = (size, size) if isinstance(size, int) else size
    if part.shape[:2] == (high, wide):
        return part
    if "torch" not in sys.modules:
        return resize(part, high, wide)
    import torch
    from torch.nn import functional

    tensor = torch.from_numpy(part)[None].permute(0, 3, 1, 2)  # with these strides torch sees channels last
    scaled = functional.interpolate(tensor, (high, wide), mode="bicubic", antialias=True)
    return scaled[0].permute(1, 2, 0).contiguous().numpy()


def _size(image: Image.Image | np.ndarray) -> tuple[int, int]:
    return (image.shape[1], image.shape[0]) if isinstance(image, np.ndarray) else image.size
