import numpy as np
import pytest
from PIL import Image

from tophit.data.preprocessing import Preprocessing


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
    result = Preprocessing(size=20, squash=True, mean=(0, 0, 0), std=(1, 1, 1))(image)
    assert result[0, :, :8].max() < 0.05
    assert result[0, :, 12:].min() > 0.95


def test_a_training_view_of_the_whole_is_the_evaluation_view() -> None:
    view, image = Preprocessing(size=32), noise(64, 48)
    np.testing.assert_array_equal(view.training_view(image, np.random.default_rng(0)), view(image))


def test_training_views_depend_on_the_generator_alone_and_half_are_mirrored() -> None:
    view, image = Preprocessing(size=16, crop=1.0), noise(32, 32)

    def views(flip: bool, scale: tuple[float, float]) -> list[np.ndarray]:
        return [view.training_view(image, np.random.default_rng(i), scale, flip) for i in range(200)]

    first, second = views(True, (0.5, 1.0)), views(True, (0.5, 1.0))
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert len({a.tobytes() for a in first}) == 200
    mirrored = sum(np.allclose(a, view(image)[:, :, ::-1]) for a in views(True, (1.0, 1.0)))
    assert 70 < mirrored < 130
    assert all(np.allclose(a, view(image)) for a in views(False, (1.0, 1.0)))


def test_it_survives_json() -> None:
    view = Preprocessing(size=96, mean=(0.1, 0.2, 0.3), squash=True)
    assert Preprocessing.from_json(view.to_json()) == view
