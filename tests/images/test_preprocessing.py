import numpy as np
import pytest
import torch
from PIL import Image

from tophit.images.preprocessing import Preprocessing, resized


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


def test_pixels_are_scaled_shifted_and_put_channels_first() -> None:
    view = Preprocessing(size=2, crop=1.0, mean=(0.5, 0.0, 0.25), std=(0.5, 1.0, 0.25))
    pixels = np.array([[[0, 51, 255], [255, 102, 0]], [[128, 0, 0], [0, 0, 0]]], np.uint8)
    expected = (pixels / 255 - [0.5, 0.0, 0.25]) / [0.5, 1.0, 0.25]
    result = view(Image.fromarray(pixels))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected.transpose(2, 0, 1), atol=1e-6)


@pytest.mark.parametrize("size", [(300, 200), (200, 300), (200, 200)])
def test_the_centre_crop_is_resize_then_crop(size: tuple[int, int]) -> None:
    image = noise(*size)
    view = Preprocessing(size=100, crop=0.5, mean=(0, 0, 0), std=(1, 1, 1))
    left, top = (size[0] - 100) / 2, (size[1] - 100) / 2
    expected = image.crop((int(left), int(top), int(left) + 100, int(top) + 100))
    np.testing.assert_allclose(view(image).transpose(1, 2, 0) * 255, np.asarray(expected), atol=1e-3)


def test_squash_keeps_all_of_the_picture() -> None:
    image = Image.new("RGB", (100, 10), "white")
    image.paste("black", (0, 0, 50, 10))
    result = Preprocessing(size=20, crop=1.0, squash=True, mean=(0, 0, 0), std=(1, 1, 1))(image)
    assert result[0, :, :8].max() < 0.05
    assert result[0, :, 12:].min() > 0.95


def test_squash_and_crop_is_resize_both_sides_then_centre_crop() -> None:
    image = noise(400, 100)
    view = Preprocessing(size=50, crop=0.5, squash=True, mean=(0, 0, 0), std=(1, 1, 1))
    expected = np.asarray(image.resize((100, 100), Image.Resampling.BICUBIC), np.int64)[25:75, 25:75]
    found = view.pixels(image).astype(np.int64)
    assert np.abs(found - expected)[3:-3, 3:-3].max() <= 3  # the crop's border has no neighbours outside it


@pytest.mark.parametrize("size", [(20, 20), (31, 17), (150, 90)])
def test_resizing_is_pillows_to_two_levels(size: tuple[int, int]) -> None:
    image = noise(97, 64)
    expected = np.asarray(image.crop((7, 3, 90, 60)).resize(size, Image.Resampling.BICUBIC), np.int64)
    assert np.abs(resized(image, (7, 3, 90, 60), size).astype(np.int64) - expected).max() <= 2


def test_bgr_is_the_other_order_of_channels() -> None:
    image = noise(16, 16)
    red_first = Preprocessing(size=16, crop=1.0, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    blue_first = Preprocessing(size=16, crop=1.0, mean=(0.3, 0.2, 0.1), std=(0.6, 0.5, 0.4), channel_order="BGR")
    np.testing.assert_allclose(blue_first(image), red_first(image)[::-1], atol=1e-6)
    assert Preprocessing.from_json(blue_first.to_json()) == blue_first


def test_a_batch_is_normalised_as_its_images_are() -> None:
    view, images = Preprocessing(size=24, mean=(0.1, 0.2, 0.3)), [noise(40, 30), noise(30, 50)]
    batch = view.normalise(torch.from_numpy(np.stack([view.pixels(image) for image in images])))
    assert batch.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_array_equal(batch.numpy(), np.stack([view(image) for image in images]))


def test_it_survives_json() -> None:
    view = Preprocessing(size=96, mean=(0.1, 0.2, 0.3), squash=True)
    assert Preprocessing.from_json(view.to_json()) == view
