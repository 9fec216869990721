"""What a user's folder holds: each awkward file becomes the picture a person sees, or a clear reason."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tophit.images.decode import BadImage, array_to_image, picture_size, read_image
from tophit.images.formats import has_heif


def gradient(width: int = 40, height: int = 20) -> Image.Image:
    """A picture whose left half is red and right half is blue."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2] = (255, 0, 0)
    pixels[:, width // 2 :] = (0, 0, 255)
    return Image.fromarray(pixels)


def test_a_truncated_jpeg_is_bad_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "cut.jpg"
    Image.effect_noise((200, 200), 80).convert("RGB").save(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(BadImage, match=r"cut\.jpg: can't be decoded \(.*truncated"):
        read_image(path)


def test_a_text_file_called_png_is_not_an_image(tmp_path: Path) -> None:
    path = tmp_path / "text.png"
    path.write_text("I am text")
    with pytest.raises(BadImage, match=r"text\.png: not an image in a known format"):
        read_image(path)


def test_a_missing_file_and_an_empty_one_are_bad(tmp_path: Path) -> None:
    with pytest.raises(BadImage, match="no such file"):
        read_image(tmp_path / "nothing.png")
    (tmp_path / "empty.png").touch()
    with pytest.raises(BadImage, match="not an image"):
        read_image(tmp_path / "empty.png")


def test_a_16_bit_png_keeps_its_greys(tmp_path: Path) -> None:
    values = np.array([[0, 257 * 64, 257 * 128, 65535]], np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    assert np.asarray(read_image(tmp_path / "deep.png"))[0, :, 0].tolist() == [0, 64, 128, 255]


def test_a_cmyk_jpeg_keeps_its_colours(tmp_path: Path) -> None:
    gradient().convert("CMYK").save(tmp_path / "print.jpg", quality=95)
    pixels = np.asarray(read_image(tmp_path / "print.jpg"), int)
    assert np.abs(pixels[10, 5] - (255, 0, 0)).max() < 40
    assert np.abs(pixels[10, 35] - (0, 0, 255)).max() < 40


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_become_white(tmp_path: Path, mode: str) -> None:
    picture = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    picture.paste((0, 0, 0, 255), (0, 0, 2, 4))
    picture.convert(mode).save(tmp_path / "see-through.png")
    pixels = np.asarray(read_image(tmp_path / "see-through.png"))
    assert (pixels[:, :2] == 0).all()
    assert (pixels[:, 2:] == 255).all()


def test_a_rotated_photo_is_upright_and_its_box_too(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: show it turned by 90 degrees clockwise
    gradient().save(tmp_path / "photo.jpg", exif=exif, quality=95)
    upright = read_image(tmp_path / "photo.jpg")
    assert upright.size == (20, 40)
    assert np.asarray(upright)[5, 10, 0] > 200  # red is on top
    assert np.asarray(upright)[35, 10, 2] > 200  # blue below
    lower = read_image(tmp_path / "photo.jpg", box=(0, 24, 20, 40))
    assert lower.size == (20, 16)
    assert np.asarray(lower)[:, :, 2].mean() > 200


def test_a_name_with_spaces_and_non_latin_letters_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "мой кот 猫 é.png"
    gradient().save(path)
    assert read_image(path).size == (40, 20)


def test_a_jpeg_is_decoded_smaller_but_never_below_the_side_in_use(tmp_path: Path) -> None:
    gradient(800, 400).save(tmp_path / "large.jpg")
    assert read_image(tmp_path / "large.jpg", least_side=100).size == (200, 100)
    assert read_image(tmp_path / "large.jpg", least_side=101).size == (400, 200)
    assert read_image(tmp_path / "large.jpg", least_side=900).size == (800, 400)
    part = read_image(tmp_path / "large.jpg", box=(400, 0, 800, 400), least_side=100)
    assert part.size == (100, 100)
    assert np.asarray(part)[:, 5:, 2].mean() > 240


def test_a_box_is_clipped_to_the_picture_and_refused_outside(tmp_path: Path) -> None:
    gradient().save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", box=(30, 10, 99, 99)).size == (10, 10)
    with pytest.raises(BadImage, match="is outside the 40x20 picture"):
        read_image(tmp_path / "a.png", box=(50, 0, 60, 10))


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    Image.new("1", (20_000, 10_000)).save(tmp_path / "bomb.png")
    with pytest.raises(BadImage, match=r"bomb\.png"):
        read_image(tmp_path / "bomb.png")


def test_arrays_of_the_usual_kinds_are_pictures() -> None:
    grey = np.array([[0, 128, 255]], np.uint8)
    for array in (grey, grey[:, :, None], grey.astype(np.uint16) * 257, grey / 255, grey.astype(np.float32) / 255):
        assert np.asarray(array_to_image(array))[0, :, 1].tolist() == [0, 128, 255]
    assert np.asarray(array_to_image(np.zeros((2, 2, 4), np.uint8))).min() == 255  # transparent
    for array, message in (
        (np.zeros((3, 8, 8), np.uint8), "shape"),
        (np.zeros((0, 8), np.uint8), "shape"),
        (np.full((2, 2), 7.0), "0 to 1"),
        (np.full((2, 2), np.nan), "0 to 1"),
        (np.zeros((2, 2), np.int64), "int64"),
    ):
        with pytest.raises(BadImage, match=message):
            array_to_image(array)


def test_a_box_larger_than_the_picture_does_not_make_it_smaller(tmp_path: Path) -> None:
    """The part of a box outside of a JPEG was taken for its size, so that the picture was decoded at an eighth."""
    path = tmp_path / "photo.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.effect_noise((64, 96), 80).convert("RGB").save(path, exif=exif)
    assert picture_size(path) == (96, 64)
    whole = read_image(path, None, 64)
    assert read_image(path, (0, 0, 1000, 1000), 64).tobytes() == whole.tobytes()


@pytest.mark.parametrize("kind", ["avif", "heic"])
def test_avif_and_heic_are_read_upright(tmp_path: Path, kind: str) -> None:
    has_heif()
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held so that the picture must be turned clockwise
    gradient().save(tmp_path / f"turned.{kind}", quality=95, exif=exif.tobytes())
    assert picture_size(tmp_path / f"turned.{kind}") == (20, 40)
    pixels = np.asarray(read_image(tmp_path / f"turned.{kind}"), int)
    assert pixels.shape == (40, 20, 3)
    assert np.abs(pixels[5, 10] - (255, 0, 0)).max() < 30
    assert np.abs(pixels[35, 10] - (0, 0, 255)).max() < 30


def test_heic_without_its_extra_says_what_to_install(tmp_path: Path) -> None:
    has_heif()
    gradient().save(tmp_path / "phone.heic")
    script = """
import sys
sys.modules["pillow_heif"] = None
from tophit.images.decode import read_image
from tophit.serve.decode_worker import Refused, measure
try:
    read_image(sys.argv[1])
except Exception as error:
    print(error)
try:
    measure(open(sys.argv[1], "rb").read(), {})
except Refused as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "phone.heic"], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("HEIC pictures need pillow-heif: pip install 'tophit[heif]'") == 2
