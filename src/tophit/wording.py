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
