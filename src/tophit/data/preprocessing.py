"""From a picture to the numbers a backbone takes: resize, crop, flip, normalise."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Preprocessing:
    """What a backbone expects: a square of ``size`` pixels, RGB, each channel (value / 255 - mean) / std.

    The picture's short side is scaled to ``size / crop`` and the centre is cut out; ``crop=1`` keeps all of
    the short side. ``squash=True`` scales both sides to ``size`` instead, whatever the aspect. ``mean`` and ``std``
    are in the order of ``channel_order``, RGB or BGR; a scale of 0 to 255 is a ``std`` of 1 / 255.
    """

    size: int = 224
    crop: float = 0.875
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    squash: bool = False
    channel_order: str = "RGB"

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Return the evaluation view of an RGB picture as float32 (3, size, size)."""
        return self._normalise(self._resize(image, self._centre(image)))

    def training_view(
        self,
        image: Image.Image,
        generator: np.random.Generator,
        scale: tuple[float, float] = (1.0, 1.0),
        flip: bool = False,
    ) -> np.ndarray:
        """Return a random crop of the share ``scale`` of the evaluation view's area, maybe mirrored."""
        left, top, right, bottom = self._centre(image)
        side = float(np.sqrt(generator.uniform(*scale)))
        width, height = side * (right - left), side * (bottom - top)
        x = left + generator.uniform() * (right - left - width)
        y = top + generator.uniform() * (bottom - top - height)
        resized = self._resize(image, (x, y, x + width, y + height))
        mirrored = flip and generator.uniform() < 0.5
        return self._normalise(resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else resized)

    @property
    def least_side(self) -> int:
        """How long a picture's short side must be for nothing to be scaled up."""
        return round(self.size / self.crop)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values; those added later only if they say something, so digests stay."""
        fields = asdict(self)
        if self.channel_order == "RGB":
            del fields["channel_order"]
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Preprocessing":
        """Return the preprocessing that ``to_json`` described."""
        return cls(**{**fields, "mean": tuple(fields["mean"]), "std": tuple(fields["std"])})

    def _centre(self, image: Image.Image) -> tuple[float, float, float, float]:
        if self.squash:
            return 0.0, 0.0, float(image.width), float(image.height)
        side = min(image.size) * self.crop
        left, top = (image.width - side) / 2, (image.height - side) / 2
        return left, top, left + side, top + side

    def _resize(self, image: Image.Image, box: tuple[float, float, float, float]) -> Image.Image:
        return image.resize((self.size, self.size), Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)

    def _normalise(self, image: Image.Image) -> np.ndarray:
        scale = 1 / (255 * np.asarray(self.std, np.float32))
        shift = np.asarray(self.mean, np.float32) / np.asarray(self.std, np.float32)
        values = np.asarray(image, np.float32)
        if self.channel_order == "BGR":
            values = values[:, :, ::-1]
        pixels = values * scale.astype(np.float32) - shift
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))
