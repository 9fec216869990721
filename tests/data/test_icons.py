from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tophit.data.check import check_manifest
from tophit.data.icon_fonts import ICON_FONTS, IconFont, normalise
from tophit.data.icons import SIDE, icon_set, pixel_vectors
from tophit.data.manifest import Manifest
from tophit.errors import TophitError


def test_the_set_has_the_size_its_documentation_states(icons: Manifest) -> None:
    sizes = Counter(icons.labels)
    assert (len(sizes), len(icons), min(sizes.values()), max(sizes.values())) == (661, 6004, 4, 26)


def test_every_class_is_drawn_by_four_families_and_is_in_one_split(icons: Manifest) -> None:
    families, splits = defaultdict(set), defaultdict(set)
    for row in icons:
        families[row.label].add(row.metadata["family"])
        splits[row.label].add(row.split)
    assert min(len(found) for found in families.values()) >= 4
    assert {len(found) for found in splits.values()} == {1}
    assert abs(Counter(next(iter(found)) for found in splits.values())["train"] - 661 / 2) < 1


def test_no_picture_occurs_twice_and_all_are_sound(icons: Manifest) -> None:
    assert check_manifest(icons) == []
    assert len({row.path.read_bytes() for row in icons}) == len(icons)


@pytest.mark.slow
def test_building_it_again_gives_the_same_bytes(icons: Manifest, tmp_path: Path) -> None:
    again = icon_set(tmp_path)
    assert [(row.label, row.split, row.metadata) for row in again] == [(r.label, r.split, r.metadata) for r in icons]
    assert all(a.path.read_bytes() == b.path.read_bytes() for a, b in zip(icons, again, strict=True))


def test_a_picture_is_a_centred_black_drawing_on_white(icons: Manifest) -> None:
    for row in icons.rows[::97]:
        pixels = np.asarray(Image.open(row.path))
        assert pixels.shape == (SIDE, SIDE)
        ink = np.argwhere(pixels < 255)
        low, high = ink.min(axis=0), ink.max(axis=0)
        assert 54 <= (high - low).max() + 1 <= 56
        assert np.abs(low + high - (SIDE - 1)).max() <= 2
    assert pixel_vectors(Manifest(icons.rows[:3]), side=8).shape == (3, 64)


def test_names_are_spelled_alike_across_families() -> None:
    assert normalise("shopping_bag") == "shopping-bag"
    glyphs = {(font.family, font.style): font.glyphs() for font in ICON_FONTS}
    assert all(
        "camera" in glyphs[key] for key in glyphs if key[0] in ("fluent", "remix", "boxicons") and key[1] != "logos"
    )
    assert all(not name.endswith(("-outline", "-fill", "-line")) for name in glyphs["remix", "line"])


def test_a_missing_package_is_named_with_what_to_install() -> None:
    font = IconFont("f", "s", "no-such-package", "a.ttf", "a.json", "MIT")
    with pytest.raises(TophitError, match=r"'no-such-package', which is not installed.*pip install 'tophit\[demo\]'"):
        font.glyphs()
