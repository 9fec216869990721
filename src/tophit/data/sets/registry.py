"""The benchmark sets by name, and the one way to read them."""

import difflib
import os
from pathlib import Path

from tophit.data.manifest import ImageRow, Manifest
from tophit.data.sets.benchmark import BenchmarkSet, count_differences
from tophit.data.sets.cars196 import CARS196
from tophit.data.sets.cub200 import CUB200
from tophit.data.sets.inaturalist import INATURALIST
from tophit.data.sets.inshop import IN_SHOP
from tophit.data.sets.layout import find_folder
from tophit.data.sets.sop import SOP
from tophit.data.sets.vehicleid import VEHICLE_ID
from tophit.errors import TophitError, UsageError

SETS: dict[str, BenchmarkSet] = {each.name: each for each in (CUB200, CARS196, SOP, VEHICLE_ID, INATURALIST, IN_SHOP)}


def set_named(name: str) -> BenchmarkSet:
    """Return a set by its name."""
    if name not in SETS:
        near = difflib.get_close_matches(name, SETS, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise UsageError(f"There is no benchmark set '{name}'.{hint} Choices: {', '.join(SETS)}.")
    return SETS[name]


def read_set(name: str, root: str | Path, partial: bool = False, boxes: bool = False) -> Manifest:
    """Return the manifest of a benchmark set, unpacked in or directly below ``root``, with its standard split.

    Missing images, and counts other than those published, are errors; with ``partial`` the images that are there are
    taken. ``boxes`` crops every image to its object, where the set has boxes.
    """
    chosen = set_named(name)
    if boxes and not chosen.boxes:
        raise UsageError(f"{chosen.title} has no boxes.")
    folder = find_folder(root, chosen.marker, chosen.title, chosen.archives)
    rows = chosen.read(folder, boxes)
    there = [row for row in rows if os.path.isfile(row.path)]
    if len(there) < len(rows) and not (partial and there):
        raise _missing_images(chosen, rows, there, partial)
    differences = count_differences(chosen.counts, rows, strict=True)
    if differences and not partial:
        raise TophitError(
            f"{chosen.title} in {folder} is not the whole set. {'. '.join(differences)}. "
            "To go on with what is there: --partial, or data.partial=true in a recipe."
        )
    return Manifest(tuple(there), str(folder))


def _missing_images(chosen: BenchmarkSet, rows: list[ImageRow], there: list[ImageRow], partial: bool) -> TophitError:
    first = next(row.path for row in rows if not os.path.isfile(row.path))
    hint = "" if partial else " To go on without them: --partial, or data.partial=true in a recipe."
    return TophitError(
        f"{chosen.title}: {len(rows) - len(there):,} of {len(rows):,} images are missing, the first is {first}. "
        f"They come with {chosen.archives}.{hint}"
    )
