"""Bicubic resizing of 8-bit pictures by NumPy, equal to torch's in every bit.

Importing torch takes longer than answering a query. So one picture is resized here if torch is not there yet, and by
torch, which is several times faster, if it is. Both follow Pillow: a cubic kernel (a = -1/2) that is widened when a
side shrinks, first along the lines and then along the columns, with weights rounded to 16 bits.
"""

from functools import lru_cache

import numpy as np

_LARGEST = 1 << 15  # what a weight must stay below
_MOST_BITS = 22


def resize(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return a picture, uint8 (H, W, channels), as uint8 (height, width, channels)."""
    if pixels.shape[1] != width:
        pixels = _along_first(pixels.swapaxes(0, 1), width).swapaxes(0, 1)
    if pixels.shape[0] != height:
        pixels = _along_first(pixels, height)
    return np.ascontiguousarray(pixels)


def _along_first(pixels: np.ndarray, size: int) -> np.ndarray:
    """Return pixels (n, m, channels) as (size, m, channels)."""
    weights, bits = _weights(len(pixels), size)
    # The sums are whole numbers below 2^53, which 64-bit floats hold exactly.
    sums = weights @ pixels.reshape(len(pixels), -1).astype(np.float64)
    rounded = np.floor((sums + (1 << (bits - 1))) / (1 << bits))
    return rounded.clip(0, 255).astype(np.uint8).reshape(size, *pixels.shape[1:])


@lru_cache(maxsize=16)
def _weights(before: int, after: int) -> tuple[np.ndarray, int]:
    """Return the weights (after, before) of old pixels in new ones as whole numbers, and their number of bits."""
    scale = before / after
    wider = max(scale, 1.0)
    centres = scale * (np.arange(after) + 0.5)
    first = np.maximum((centres - 2 * wider + 0.5).astype(int), 0)
    last = np.minimum((centres + 2 * wider + 0.5).astype(int), before)
    places = np.arange(before)
    inside = (places >= first[:, None]) & (places < last[:, None])
    shares = np.where(inside, _cubic((places - centres[:, None] + 0.5) * (1 / wider)), 0.0)
    shares /= shares.sum(axis=1, keepdims=True)
    largest, bits = shares.max(), 0
    while bits < _MOST_BITS and int(0.5 + largest * (1 << (bits + 1))) < _LARGEST:
        bits += 1
    return np.trunc(shares * (1 << bits) + np.copysign(0.5, shares)), bits


def _cubic(x: np.ndarray) -> np.ndarray:
    """Return the cubic kernel with a = -1/2, which is 0 from 2 on."""
    x = np.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * -0.5
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))
