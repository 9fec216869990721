"""A process that decodes untrusted images: with a memory limit, no files to write, and cheap to kill.

It talks over stdin and stdout, one picture at a time: a line of JSON, then as many bytes as it states. Started by
:mod:`tophit.serve.decode_pool`; it imports no torch.
"""

import io
import json
import resource
import sys
import warnings
from contextlib import suppress
from typing import Any, BinaryIO

from PIL import Image

from tophit.images.decode import to_rgb
from tophit.images.formats import prepare_decoders, readable_formats, why_unknown

_CALLED = {"WEBP": "WebP", "HEIF": "HEIC"}


class Refused(Exception):
    """A picture that is refused, with the reason."""


def decode(data: bytes, job: dict[str, Any]) -> list[Image.Image]:
    """Return upright RGB pictures of the boxes that a job asks for; a thumbnail (no ``raw``) keeps transparent parts.

    ``job`` holds the limits pixels, side and ratio; within: the part in use, in pixels of the upright picture, or
    None; boxes: fractions of that, None for all of it; least_side: pictures over twice that size are reduced.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data), formats=readable_formats()) as image:
                _check(image.size, job)
                width = image.width
                _draft(image, job)
                scale = image.width / width
                rgb = to_rgb(image, keep_transparency=not job["raw"])  # of an animation, the first frame
                _check(rgb.size, job)  # a header may have lied
        except Refused:
            raise
        except MemoryError:
            raise Refused("decoding needs more memory than allowed") from None
        except Exception as error:  # Pillow's plugins raise nearly everything on broken files
            raise Refused(_no_picture(data)) from error
    rgb.info.clear()  # drop EXIF, comments and profiles
    if job["within"]:
        x1, y1, x2, y2 = (value * scale for value in job["within"])
        left, top = min(int(x1), rgb.width - 1), min(int(y1), rgb.height - 1)
        rgb = rgb.crop((left, top, max(left + 1, min(rgb.width, round(x2))), max(top + 1, min(rgb.height, round(y2)))))
    return [_part(rgb, box, job["least_side"]) for box in job["boxes"]]


def measure(data: bytes, job: dict[str, Any]) -> tuple[int, int]:
    """Return the size of a picture from its header, if it is within the limits."""
    try:
        with Image.open(io.BytesIO(data), formats=readable_formats()) as image:
            _check(image.size, job)
            return image.size
    except Refused:
        raise
    except Exception as error:
        raise Refused(_no_picture(data)) from error


def _no_picture(data: bytes) -> str:
    *names, last = (_CALLED.get(name, name) for name in readable_formats())
    return why_unknown(data[:16]) or f"not a {', '.join(names)} or {last} picture, or a damaged one"


def _check(size: tuple[int, int], job: dict[str, Any]) -> None:
    """Refuse by the header alone, before any pixel is decoded."""
    width, height = size
    if max(size) > job["side"]:
        raise Refused(f"{width}x{height} pixels: a side is longer than {job['side']:,}")
    if width * height > job["pixels"]:
        raise Refused(f"{width}x{height} are more than {job['pixels']:,} pixels")
    if max(size) > job["ratio"] * min(size):
        raise Refused(f"{width}x{height} pixels: a side is more than {job['ratio']:g} times the other")


def _draft(image: Image.Image, job: dict[str, Any]) -> None:
    """Let the JPEG decoder halve the picture while the smallest box keeps its least side."""
    shares = [min(box[2] - box[0], box[3] - box[1]) if box else 1.0 for box in job["boxes"]]
    within = job["within"]
    side = min(within[2] - within[0], within[3] - within[1]) if within else min(image.size)
    ratio = job["least_side"] / max(1.0, side * min(shares))
    if ratio < 1:
        image.draft(None, (-int(-image.width * ratio // 1), -int(-image.height * ratio // 1)))


def _part(image: Image.Image, box: list[float] | None, least_side: int) -> Image.Image:
    if box is not None:
        left, top = int(box[0] * image.width), int(box[1] * image.height)
        right = max(left + 1, round(box[2] * image.width))
        bottom = max(top + 1, round(box[3] * image.height))
        image = image.crop((left, top, right, bottom))
    factor = min(image.size) // (2 * least_side)
    return image.reduce(factor) if factor > 1 else image


def encode(image: Image.Image, side: int) -> bytes:
    """Return a picture as WebP, its long side at most ``side``: the only form in which pictures leave the server."""
    image = image.copy()
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "WEBP", quality=88, method=2)
    return out.getvalue()


def _answer(data: bytes, job: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    try:
        if job.get("measure"):
            return {"size": list(measure(data, job))}, []
        pictures = decode(data, job)
        parts = [picture.tobytes() for picture in pictures] if job["raw"] else []
        sizes = [list(picture.size) for picture in pictures]
        webp = encode(pictures[0], job["webp"]) if job["webp"] else b""
        return {"sizes": sizes, "lengths": [*map(len, parts), len(webp)]}, [*parts, webp]
    except Refused as reason:
        return {"refused": str(reason)}, []
    except MemoryError:
        return {"refused": "decoding needs more memory than allowed"}, []


def serve_pipe(source: BinaryIO, target: BinaryIO) -> None:
    """Answer jobs until the source ends."""
    while line := source.readline():
        job = json.loads(line)
        head, parts = _answer(source.read(job["length"]), job)
        target.write(json.dumps(head).encode() + b"\n")
        for part in parts:
            target.write(part)
        target.flush()


def main() -> None:
    """Drop every right that a decoder does not need, then answer."""
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    Image.MAX_IMAGE_PIXELS = None  # our own limits are checked first, and say what is wrong
    prepare_decoders()  # while files can still be opened
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in readable_formats():
            with suppress(Exception):  # a build may read a format that it can't write
                made = io.BytesIO()
                Image.new("RGB", (64, 64)).save(made, name)
                with Image.open(made, formats=[name]) as image:
                    image.load()
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    serve_pipe(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
