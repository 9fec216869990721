"""CUB-200-2011: birds. Classes 1 to 100 are for training, 101 to 200 for testing.

The archive has no taxonomy, but most names end in the kind of bird: ``family`` is the last word of the class's name.
"""

from pathlib import Path

from tophit.data.manifest import ImageRow
from tophit.data.sets.benchmark import Count, benchmark_set
from tophit.data.sets.layout import number, numbers, table
from tophit.errors import TophitError
from tophit.images.decode import Box

_ARCHIVE = "CUB_200_2011.tgz"
_LAST_TRAINING_CLASS = 100


@benchmark_set(
    "cub200",
    title="CUB-200-2011",
    marker="images.txt",
    archives=_ARCHIVE,
    licence="non-commercial research and education",
    counts=(Count("train", 100, 5_864), Count("test", 100, 5_924)),
    boxes=True,
)
def cub200(root: Path, boxes: bool) -> list[ImageRow]:
    """Join the tables by their image ids, which count from 1."""
    class_of = dict(table(root / "image_class_labels.txt", 2, _ARCHIVE))
    name_of = dict(table(root / "classes.txt", 2, _ARCHIVE))
    box_of = _boxes(root / "bounding_boxes.txt") if boxes else {}
    rows = []
    for image, path in table(root / "images.txt", 2, _ARCHIVE):
        label = class_of.get(image, "")
        if label not in name_of:
            raise TophitError(f"{root / 'images.txt'}: image {image} has no class in the tables beside it.")
        split = "train" if number(label, root / "image_class_labels.txt", "a class") <= _LAST_TRAINING_CLASS else "test"
        name = name_of[label]
        rows.append(ImageRow(root / "images" / path, name, split, "both", box_of.get(image), {"family": _family(name)}))
    return rows


def _family(name: str) -> str:
    """Return the last word of a class's name: Albatross of 001.Black_footed_Albatross."""
    return name.rpartition(".")[2].rpartition("_")[2]


def _boxes(path: Path) -> dict[str, Box]:
    """Return the box of each image id; the file has left, top, width, height."""
    found: dict[str, Box] = {}
    for image, *values in table(path, 5, _ARCHIVE):
        left, top, width, height = numbers(values, path)
        found[image] = max(0.0, left), max(0.0, top), left + width, top + height
    return found
