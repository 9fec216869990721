"""VehicleID (PKU): vehicles seen by cameras. Three test sets: small, medium, large (800, 1,600, 2,400 vehicles).

Some of the vehicles have a ``model`` and a ``color``: numbers, from the archive's folder ``attribute``.
"""

from pathlib import Path

from tophit.data.manifest import ImageRow
from tophit.data.sets.benchmark import Count, benchmark_set
from tophit.data.sets.layout import first_existing, table

_ARCHIVE = "VehicleID_V1.0.zip"
_ATTRIBUTES = ("model", "color")
_TEST_LISTS = {"small": 800, "medium": 1_600, "large": 2_400}


# Users of the archive count different numbers of images, and 30 more training vehicles, than the papers give; so
# differences only produce a note.
@benchmark_set(
    "vehicleid",
    title="VehicleID",
    marker="train_test_split/train_list.txt",
    archives=_ARCHIVE,
    licence="research, on request from its authors (PKU)",
    counts=(
        Count("train", 13_134, 110_178, strict=False),
        Count("small", 800, 7_332, strict=False),
        Count("medium", 1_600, 12_995, strict=False),
        Count("large", 2_400, 20_038, strict=False),
    ),
)
def vehicleid(root: Path, boxes: bool) -> list[ImageRow]:
    """Lines are image and vehicle; names have no .jpg. Each image is one row that names all test sets it is in."""
    lists = root / "train_test_split"
    images = first_existing(root, "image", "images", archive=_ARCHIVE)
    about = _attributes(root / "attribute")
    rows = [
        ImageRow(images / f"{name}.jpg", vehicle, "train", metadata=about.get(vehicle, {}))
        for name, vehicle in table(lists / "train_list.txt", 2, _ARCHIVE)
    ]
    vehicle_of: dict[str, str] = {}
    sets_of: dict[str, list[str]] = {}
    for test_set, size in _TEST_LISTS.items():
        for name, vehicle in table(lists / f"test_list_{size}.txt", 2, _ARCHIVE):
            vehicle_of[name] = vehicle
            sets_of.setdefault(name, []).append(test_set)
    for name, vehicle in vehicle_of.items():
        metadata = {"test_sets": " ".join(sets_of[name]), **about.get(vehicle, {})}
        rows.append(ImageRow(images / f"{name}.jpg", vehicle, metadata=metadata))
    return rows


def _attributes(folder: Path) -> dict[str, dict[str, str]]:
    """Return what is known of each vehicle; lines are vehicle and number. Copies without the folder have nothing."""
    found: dict[str, dict[str, str]] = {}
    for name in _ATTRIBUTES:
        path = folder / f"{name}_attr.txt"
        for vehicle, value in table(path, 2, _ARCHIVE) if path.is_file() else ():
            found.setdefault(vehicle, {})[name] = value
    return found
