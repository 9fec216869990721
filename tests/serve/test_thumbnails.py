"""Pictures as the page gets them: what is transparent stays so, and only there."""

from typing import Any

import pytest
from PIL import Image
from tests.serve.served import encoded

from tophit.serve.decode_worker import decode, encode

JOB: dict[str, Any] = {
    **{"pixels": 1_000_000, "side": 2000, "ratio": 50, "boxes": [None], "within": None, "least_side": 32}
}


def icon() -> bytes:
    """A red square on nothing."""
    picture = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    picture.paste((255, 0, 0, 255), (10, 10, 30, 30))
    return encoded(picture)


def test_a_thumbnail_keeps_what_is_transparent_so_that_the_page_chooses_the_ground() -> None:
    import io

    made = decode(icon(), {**JOB, "raw": False})[0]
    with Image.open(io.BytesIO(encode(made, 40))) as webp:
        corner, middle = (webp.convert("RGBA").getpixel(place) for place in ((2, 2), (20, 20)))
    assert corner[3] == 0  # type: ignore[index]
    assert middle[3] == 255  # type: ignore[index]


def test_a_model_sees_it_on_white() -> None:
    made = decode(icon(), {**JOB, "raw": True})[0]
    assert made.mode == "RGB"
    assert made.getpixel((2, 2)) == (255, 255, 255)


@pytest.mark.parametrize("raw", [True, False])
def test_a_photo_has_no_fourth_channel(raw: bool) -> None:
    assert decode(encoded(Image.new("RGB", (40, 40), "blue")), {**JOB, "raw": raw})[0].mode == "RGB"
