"""Files that were made to hurt: each is small, and each asks for far more than it should get."""

import functools
import io
import random
import struct
import zlib

from PIL import Image
from tests.serve.served import encoded


def png(width: int, height: int, rows: bytes | None = None) -> bytes:
    """A PNG of one bit a pixel whose header says what it likes; without rows, all of them, black."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    if rows is None:
        line = 1 + -(-width // 8)
        packer = zlib.compressobj(9)
        rows = b"".join(packer.compress(bytes(line)) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def gif(width: int, height: int) -> bytes:
    """A GIF whose screen is as large as it likes, with one pixel."""
    small = encoded(Image.new("P", (1, 1)), "GIF")
    return small[:6] + struct.pack("<HH", width, height) + small[10:]


def bmp(width: int, height: int) -> bytes:
    """A BMP header without its pixels."""
    small = bytearray(encoded(Image.new("RGB", (1, 1)), "BMP"))
    small[18:26] = struct.pack("<ii", width, height)
    return bytes(small)


def tiff(width: int, height: int) -> bytes:
    """A TIFF of one strip whose two first tags, the sides, say what they like."""
    small = bytearray(encoded(Image.new("L", (1, 1)), "TIFF"))
    for tag, value in ((256, width), (257, height)):
        place = small.index(struct.pack("<H", tag) + struct.pack("<H", 4))
        small[place + 8 : place + 12] = struct.pack("<I", value)
    return bytes(small)


def boxed(kind: str, width: int, height: int, side: int = 64) -> bytes:
    """An AVIF or HEIC picture of a side whose box of the size says what it likes."""
    from tophit.images.formats import has_heif

    assert has_heif()
    small = bytearray(encoded(Image.new("RGB", (side, side), "red"), kind))
    place = small.index(b"ispe") + 8
    small[place : place + 8] = struct.pack(">II", width, height)
    return bytes(small)


def frames(count: int) -> bytes:
    """A WebP of many frames."""
    pictures = [Image.new("RGB", (16, 16), (n % 256, n // 256, 0)) for n in range(count)]
    out = io.BytesIO()
    pictures[0].save(out, "WEBP", save_all=True, append_images=pictures[1:], duration=10, quality=1, method=0)
    return out.getvalue()


def giant_exif() -> bytes:
    """A JPEG that is nearly all EXIF: seven segments of comments, and an orientation."""
    picture = encoded(Image.new("RGB", (40, 20), "red"), "JPEG")
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "secret place " * 4500
    plain = io.BytesIO()
    Image.open(io.BytesIO(picture)).save(plain, "JPEG", exif=exif)
    comment = b"\xff\xfe" + struct.pack(">H", 65535) + b"x" * 65533
    data = plain.getvalue()
    return data[:2] + 40 * comment + data[2:]


def mutated(data: bytes, seed: int) -> bytes:
    """A file with a few bytes changed, a part cut out, doubled or added, by chance."""
    chance = random.Random(seed)
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        kind, place = chance.randrange(5), chance.randrange(len(changed) or 1)
        if kind == 0:
            changed[place : place + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del changed[place : place + chance.randint(1, 40)]
        elif kind == 2:
            changed[place:place] = changed[place : place + chance.randint(1, 40)]
        elif kind == 3:
            changed[place : place + 4] = struct.pack(">I", chance.choice([0, 1, 65535, 2**31 - 1, 2**32 - 1]))
        else:
            changed = changed[: max(1, place)] if chance.random() < 0.2 else changed
    return bytes(changed)


@functools.cache
def corpus() -> dict[str, bytes]:
    """The bombs by name."""
    good = encoded(Image.new("RGB", (64, 64), "blue"), "JPEG")
    return {
        "178 megapixels": png(16_000, 11_125),
        "177 megapixels, long": png(60_000, 2_950),
        "lying header": png(30_000, 30_000, zlib.compress(b"\0" * 100)),
        "small lie": png(5_000, 5_000, zlib.compress(b"\0" * 100)),
        "ribbon": png(8_000, 100),
        "truncated": good[: len(good) // 2],
        "polyglot": b"GIF89a" + good,
        "script": b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        "psd": b"8BPS\0\1" + bytes(40),
        "giant gif": gif(60_000, 60_000),
        "giant bmp": bmp(30_000, 30_000),
        "giant tiff": tiff(60_000, 60_000),
        "177 megapixels of tiff": tiff(15_900, 11_125),
        "60 megapixels of avif": boxed("AVIF", 8_000, 7_500),
        "60 megapixels of heic": boxed("HEIF", 8_000, 7_500),
        "empty": b"",
    }
