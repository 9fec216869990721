"""Resizing without torch: equal to torch in every bit, and used where torch is not imported."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from tophit.images.preprocessing import Preprocessing
from tophit.images.resampling import resize

SIDE = st.integers(1, 90)


@settings(max_examples=60, deadline=None)
@given(SIDE, SIDE, SIDE, SIDE, st.integers(0, 5))
def test_every_bit_is_torchs(height: int, width: int, high: int, wide: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    tensor = torch.from_numpy(pixels)[None].permute(0, 3, 1, 2)
    expected = functional.interpolate(tensor, (high, wide), mode="bicubic", antialias=True)[0].permute(1, 2, 0)
    np.testing.assert_array_equal(resize(pixels, high, wide), expected.numpy())


@pytest.mark.parametrize("order", ["RGB", "BGR"])
def test_a_picture_is_prepared_the_same_with_and_without_torch(order: str) -> None:
    """The numbers of a process that never imports torch are those of the batches that torch normalises."""
    code = (
        "import sys, numpy as np; from tophit.images.preprocessing import Preprocessing\n"
        "picture = np.random.default_rng(3).integers(0, 256, (50, 70, 3), dtype=np.uint8)\n"
        f"numbers = Preprocessing(32, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), channel_order={order!r})(picture)\n"
        "assert 'torch' not in sys.modules\n"
        "sys.stdout.buffer.write(numbers.tobytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    alone = np.frombuffer(done.stdout, np.float32).reshape(3, 32, 32)
    picture = np.random.default_rng(3).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    wanted = Preprocessing(32, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), channel_order=order)
    batch = wanted.normalise(torch.from_numpy(wanted.pixels(picture))[None])[0]
    np.testing.assert_array_equal(alone, batch.numpy())
