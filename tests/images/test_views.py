"""Random views: what each set-up shows, and that a view depends on seed, epoch and row alone."""

import numpy as np
import pytest
from PIL import Image

from tophit.images.preprocessing import Preprocessing
from tophit.images.views import Augmentation, training_pixels


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


def coordinates(width: int, height: int) -> np.ndarray:
    """A picture whose red is the column and green the row."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, :, 0], pixels[:, :, 1] = np.arange(width), np.arange(height)[:, None]
    return pixels


def views(view: Preprocessing, image: Image.Image | np.ndarray, augmentation: Augmentation, count: int = 200):
    return [training_pixels(view, image, augmentation, augmentation.generator(0, row)) for row in range(count)]


def test_a_view_of_the_whole_is_the_evaluation_view() -> None:
    view, image = Preprocessing(size=32), noise(64, 48)
    np.testing.assert_array_equal(views(view, image, Augmentation(0), 1)[0], view.pixels(image))


def test_views_depend_on_seed_epoch_and_row_and_half_are_mirrored() -> None:
    view, image = Preprocessing(size=16, crop=1.0), noise(48, 48)
    augmentation = Augmentation(0, (0.3, 1.0), True)
    first, second = views(view, image, augmentation), views(view, image, augmentation)
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert len({a.tobytes() for a in first}) > 150  # whole pixels: some crops are the same
    others = (augmentation.generator(1, 0), Augmentation(1).generator(0, 0))
    assert len({g.uniform() for g in (*others, augmentation.generator(0, 0))}) == 3
    mirrored = sum((a == view.pixels(image)[:, ::-1]).all() for a in views(view, image, Augmentation(0, flip=True)))
    assert 70 < mirrored < 130
    assert all((a == view.pixels(image)).all() for a in views(view, image, Augmentation(0)))


def test_a_random_crop_is_a_window_of_the_input_anywhere_in_the_scaled_picture() -> None:
    view = Preprocessing(size=224, crop=224 / 256)
    found = views(view, coordinates(256, 256), Augmentation(0, crop="random"), 500)
    corners = np.array([a[0, 0, :2] for a in found], np.int64)
    for pixels, (x, y) in zip(found, corners, strict=True):
        np.testing.assert_array_equal(pixels, coordinates(256, 256)[y : y + 224, x : x + 224])
    assert (corners.min(axis=0) <= 1).all()
    assert (corners.max(axis=0) >= 31).all()
    assert (abs(corners.mean(axis=0) - 16) < 1.5).all()


def test_a_random_crop_of_a_wide_picture_moves_along_it_unless_it_is_squashed() -> None:
    picture = coordinates(200, 100)
    kept = views(Preprocessing(size=50, crop=0.5), picture, Augmentation(0, crop="random"))
    assert {int(a[:, -1, 0].mean()) - int(a[:, 0, 0].mean()) for a in kept} == {49}
    assert max(int(a[0, 0, 0]) for a in kept) > 140
    squashed = views(Preprocessing(size=50, crop=0.5, squash=True), picture, Augmentation(0, crop="random"))
    assert {round((int(a[25, -1, 0]) - int(a[25, 0, 0])) / 49) for a in squashed} == {2}


def test_a_random_resized_crop_has_the_share_and_the_ratio_it_was_asked_for() -> None:
    augmentation = Augmentation(0, (0.2, 0.8), crop="random-resized", ratio=(0.5, 2.0))
    found = views(Preprocessing(size=100), coordinates(200, 200), augmentation, 300)
    shapes = np.array([(int(a[50, 90, 0]) - int(a[50, 10, 0]), int(a[90, 50, 1]) - int(a[10, 50, 1])) for a in found])
    wide, high = shapes.T / 0.8
    share, ratio = wide * high / 40_000, wide / high
    assert 0.18 < share.min() < 0.25
    assert 0.72 < share.max() < 0.85
    assert 0.45 < ratio.min() < 0.6
    assert 1.7 < ratio.max() < 2.2


def test_a_random_resized_crop_of_a_narrow_picture_falls_back_to_what_fits() -> None:
    augmentation = Augmentation(0, (0.9, 1.0), crop="random-resized")
    (pixels,) = views(Preprocessing(size=30), coordinates(240, 30), augmentation, 1)
    assert abs(int(pixels[0, 0, 0]) - 100) <= 2  # the middle 40 columns, at the ratio of 4 to 3
    assert abs(int(pixels[0, -1, 0]) - 139) <= 2


@pytest.mark.parametrize(
    ("crop", "scale", "side"),
    [("view", (0.25, 1.0), 512), ("random", (0.25, 1.0), 256), ("random-resized", (0.25, 1.0), 448)],
)
def test_pictures_are_kept_large_enough_for_the_smallest_crop(crop, scale, side) -> None:
    assert Augmentation(0, scale, crop=crop).least_side(Preprocessing(size=224)) == side
