"""From an image file to an upright 8-bit RGB picture, or the reason it can't be read."""

import warnings
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from tophit.errors import TophitError, UsageError
from tophit.files import check_plain_file
from tophit.images.formats import has_heif, why_unknown

MAX_PIXELS = 178_956_970  # Pillow's own limit; a larger picture is an attack or a mistake
_SIXTEEN_BIT_TO_EIGHT = 1 / 257
_ORIENTATION = 0x0112  # the EXIF tag of how a camera was held


Box = tuple[float, float, float, float]  # x1, y1, x2, y2 in pixels of the upright picture
ImageInput = str | Path | Image.Image | np.ndarray


class BadImage(TophitError):
    """An image file that can't be used, with its path and the reason."""


def read_image(source: ImageInput, box: Box | None = None, least_side: int | None = None) -> Image.Image:
    """Return an image file, Pillow image or array as a person sees it: EXIF rotation applied, alpha over white, RGB.

    ``box`` crops. ``least_side`` allows a JPEG to be decoded at a smaller scale as long as the cropped picture's sides
    stay at least that long.
    """
    if isinstance(source, Image.Image | np.ndarray):
        image = array_to_image(source) if isinstance(source, np.ndarray) else to_rgb(source)
        return image if box is None else _crop(image, box)
    path = Path(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # decompression bombs are checked here; odd EXIF does not change pixels
            check_plain_file(path)
            has_heif()  # lets Pillow open it
            with Image.open(path) as image:
                return _read_open_image(image, box, least_side)
    except FileNotFoundError:
        raise BadImage(f"{path}: no such file") from None
    except UnidentifiedImageError:
        raise BadImage(f"{path}: {_why_unknown(path)}") from None
    except BadImage as error:
        raise BadImage(f"{path}: {error}") from None
    except TophitError as error:
        raise BadImage(str(error)) from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadImage(f"{path}: can't be decoded ({error})") from error


def check_pictures(sources: Iterable[object]) -> None:
    """Raise if one of the files that a user names is not there or is a folder; what is no path is passed over."""
    for path in (Path(each) for each in sources if isinstance(each, str | Path)):
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name a picture.")
        if not path.exists():
            raise UsageError(f"There is no picture {path}.")


def to_rgb(image: Image.Image, keep_transparency: bool = False) -> Image.Image:
    """Return a Pillow image of any mode as upright 8-bit RGB; one that already is, is returned unchanged.

    Transparent parts become white, or stay so with ``keep_transparency``: then the picture is RGBA.
    """
    if image.getexif().get(_ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode == "RGB" and not image.has_transparency_data:
        image.load()
        return image
    if image.mode.startswith(("I", "F")):
        image = _to_eight_bit(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if keep_transparency:
            return image
        background = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(background, image)
    return image.convert("RGB")


def array_to_image(array: np.ndarray) -> Image.Image:
    """Return the picture in an array: (H, W), (H, W, 1), (H, W, 3) or (H, W, 4); uint8, uint16 or floats in 0..1."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)) or 0 in array.shape:
        raise BadImage(f"an image array must have shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4), not {array.shape}")
    if array.dtype == np.uint16:
        array = (array * _SIXTEEN_BIT_TO_EIGHT).round()
    elif np.issubdtype(array.dtype, np.floating):
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise BadImage("an image array of floats must have finite values from 0 to 1")
        array = (array * 255).round()
    elif array.dtype != np.uint8:
        raise BadImage(f"an image array must be uint8, uint16 or float, not {array.dtype}")
    return to_rgb(Image.fromarray(np.ascontiguousarray(array.astype(np.uint8))))


def _read_open_image(image: Image.Image, box: Box | None, least_side: int | None) -> Image.Image:
    if image.width * image.height > MAX_PIXELS:
        raise BadImage(f"{image.width}x{image.height} pixels are more than the limit of {MAX_PIXELS:,}")
    full_size = image.size
    if least_side is not None:
        _decode_smaller(image, None if box is None else _inside(box, image), least_side)
    scale = image.width / full_size[0]
    rgb = to_rgb(image)
    return rgb if box is None else _crop(rgb, tuple(value * scale for value in box))


def picture_size(path: str | Path) -> tuple[int, int]:
    """Return width and height of an image file as a person sees it, from its head alone."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_plain_file(path)
            has_heif()
            with Image.open(path) as image:
                return _upright_size(image)
    except TophitError as error:
        raise BadImage(str(error)) from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadImage(f"{path}: can't be decoded ({error})") from error


def _why_unknown(path: Path) -> str:
    with path.open("rb") as file:
        return why_unknown(file.read(16)) or "not an image in a known format"


def _upright_size(image: Image.Image) -> tuple[int, int]:
    turned = image.getexif().get(_ORIENTATION, 1) in (5, 6, 7, 8)  # by a quarter
    return (image.height, image.width) if turned else image.size


def _inside(box: Box, image: Image.Image) -> Box:
    """Return the part of a box that is inside the upright picture: what lies outside must not count as its size."""
    width, height = _upright_size(image)
    return min(box[0], width), min(box[1], height), min(box[2], width), min(box[3], height)


def _decode_smaller(image: Image.Image, box: Box | None, least_side: int) -> None:
    """Let the JPEG decoder halve the picture (up to three times) while the part in use keeps its least side."""
    width, height = (box[2] - box[0], box[3] - box[1]) if box else image.size
    ratio = least_side / max(1.0, min(width, height))
    if ratio < 1:
        wanted = (int(np.ceil(image.width * ratio)), int(np.ceil(image.height * ratio)))
        image.draft(None, wanted)


def _crop(image: Image.Image, box: tuple[float, ...]) -> Image.Image:
    x1, y1 = int(box[0]), int(box[1])
    x2, y2 = min(image.width, round(box[2])), min(image.height, round(box[3]))
    if x2 <= x1 or y2 <= y1:
        raise BadImage(f"the box {tuple(round(v) for v in box)} is outside the {image.width}x{image.height} picture")
    return image.crop((x1, y1, x2, y2))


def _to_eight_bit(image: Image.Image) -> Image.Image:
    """Scale 16-bit integers (0..65535) or floats (0..1, else 0..255) to 8 bits; Pillow alone would clip to white."""
    values = np.asarray(image, dtype=np.float64)
    factor = _SIXTEEN_BIT_TO_EIGHT
    if image.mode == "F":
        factor = 255.0 if values.max(initial=0) <= 1 else 1.0
    return Image.fromarray(np.clip(np.round(values * factor), 0, 255).astype(np.uint8))
