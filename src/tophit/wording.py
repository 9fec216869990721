"""Words that several messages share."""


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun; without ``many``, the plural is regular.

    >>> counted(1, "class"), counted(2, "class"), counted(1200, "query"), counted(0, "image")
    ('1 class', '2 classes', '1,200 queries', '0 images')
    """
    if number == 1:
        return f"1 {one}"
    regular = f"{one[:-1]}ies" if one.endswith("y") else f"{one}es" if one.endswith("s") else f"{one}s"
    return f"{number:,} {many or regular}"


def readable_bytes(size: float) -> str:
    """Return a number of bytes as a person reads it.

    >>> readable_bytes(2e9), readable_bytes(1_400_000), readable_bytes(0)
    ('2.0 GB', '1.4 MB', '0.0 kB')
    """
    units = [("GB", 1e9, 1e8), ("MB", 1e6, 1e5), ("kB", 1e3, 0.0)]
    return next(f"{size / unit:,.1f} {name}" for name, unit, least in units if size >= least)
