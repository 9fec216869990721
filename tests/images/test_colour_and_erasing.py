"""Colour jitter against Pillow's ImageEnhance; random erasing by what it leaves alone."""

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from tophit.images.preprocessing import Preprocessing
from tophit.images.views import Augmentation, jittered, training_pixels

VIEW = Preprocessing(size=40, crop=1.0)
PICTURE = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)


def view(augmentation: Augmentation, epoch: int) -> np.ndarray:
    return training_pixels(VIEW, PICTURE, augmentation, augmentation.generator(epoch, 0))


@pytest.mark.parametrize(
    "factors", [(1, 1, 1), (1.3, 1, 1), (0.6, 1, 1), (1, 1.4, 1), (1, 0.5, 1), (1, 1, 0), (0.8, 1.3, 1.6)]
)
def test_jitter_is_what_pillow_enhances(factors: tuple[float, float, float]) -> None:
    expected = Image.fromarray(PICTURE)
    kinds = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for kind, factor in zip(kinds, factors, strict=True):
        expected = kind(expected).enhance(factor)
    found = jittered(PICTURE, *factors)
    assert found.dtype == np.uint8
    assert np.abs(found.astype(int) - np.asarray(expected).astype(int)).max() <= 5  # Pillow rounds down after each step


def test_jitter_draws_anew_for_every_view_and_stays_in_its_range() -> None:
    grey = np.full((40, 40, 3), 100, np.uint8)
    augmentation = Augmentation(0, jitter=0.3)
    levels = [
        training_pixels(VIEW, grey, augmentation, augmentation.generator(epoch, 0)).mean() for epoch in range(200)
    ]
    assert 70 <= min(levels) < 75
    assert 125 < max(levels) <= 130
    assert np.array_equal(view(Augmentation(0, jitter=0.3), 5), view(Augmentation(0, jitter=0.3), 5))


def test_erasing_replaces_one_rectangle_in_some_views() -> None:
    shares = []
    for epoch in range(300):
        changed = (view(Augmentation(0, erase=0.5), epoch) != PICTURE).any(axis=2)
        if changed.any():
            rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
            inside = changed[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
            assert inside.mean() > 0.95  # noise may equal the picture by chance
            shares.append(inside.size / changed.size)
    assert 110 < len(shares) < 190
    assert 0.015 < min(shares) < 0.05
    assert 0.25 < max(shares) < 0.36


def test_without_them_views_are_what_they_were() -> None:
    assert np.array_equal(
        view(Augmentation(0, scale=(0.5, 1.0), flip=True), 3),
        view(Augmentation(0, scale=(0.5, 1.0), flip=True, jitter=0.0, erase=0.0), 3),
    )
    plain, changed = (view(Augmentation(0, scale=(0.5, 1.0), flip=True, jitter=j), 3) for j in (0.0, 1e-9))
    assert np.abs(plain.astype(int) - changed.astype(int)).max() <= 1  # the crop and the mirror are drawn first
