"""Which kinds of image files can be read here, and what would let the others be read.

AVIF is read by Pillow where its build has it, HEIC by pillow-heif (``tophit[heif]``).
"""

from functools import cache

from PIL import Image, features

_ALWAYS = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
_AVIF, _HEIF = frozenset({".avif"}), frozenset({".heic", ".heif"})
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
_NEEDS = {**dict.fromkeys(_AVIF, "a Pillow with AVIF"), **dict.fromkeys(_HEIF, "tophit[heif]")}


def has_avif() -> bool:
    """Return whether this Pillow reads AVIF."""
    return bool(features.check("avif"))


@cache
def has_heif() -> bool:
    """Return whether HEIC can be read; if so, Pillow is told how, the first time."""
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.options.DECODE_THREADS = 1  # images are decoded in many processes already
    pillow_heif.register_heif_opener(thumbnails=False)
    return True


def readable_suffixes() -> frozenset[str]:
    """Return the endings of files that can be read, in lower case."""
    return _ALWAYS | (_AVIF if has_avif() else frozenset()) | (_HEIF if has_heif() else frozenset())


def needed_for(suffix: str) -> str | None:
    """Return what to install to read files of an image suffix that can't be read; None for any other suffix."""
    return None if suffix in readable_suffixes() else _NEEDS.get(suffix)


def readable_formats() -> tuple[str, ...]:
    """Return Pillow's names of the formats that a server accepts; each is recognised by content."""
    always = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
    return (*always, *(("AVIF",) if has_avif() else ()), *(("HEIF",) if has_heif() else ()))


def why_unknown(head: bytes) -> str | None:
    """Return why a file that starts with these bytes is not recognised, if it is a picture of a kind not read here."""
    if head[4:8] != b"ftyp":
        return None
    brand = head[8:12]
    if brand in _HEIF_BRANDS and not has_heif():
        return "HEIC pictures need pillow-heif: pip install 'tophit[heif]'"
    if brand in (b"avif", b"avis") and not has_avif():
        return "AVIF pictures need a Pillow with AVIF: pip install --upgrade pillow"
    return None


def prepare_decoders() -> None:
    """Load every decoder that may be needed, with one thread each, before a process gives up its rights."""
    has_heif()
    Image.init()
    if has_avif():
        from PIL import AvifImagePlugin

        AvifImagePlugin.DEFAULT_MAX_THREADS = 1
