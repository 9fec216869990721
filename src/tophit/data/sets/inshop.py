"""In-Shop Clothes Retrieval (DeepFashion): queries search a gallery of other photos of the same items."""

from pathlib import Path

from tophit.data.manifest import ImageRow
from tophit.data.sets.benchmark import Count, benchmark_set
from tophit.data.sets.layout import first_existing, number, numbers, table
from tophit.errors import TophitError
from tophit.images.decode import Box

_ARCHIVE = "the folder 'In-shop Clothes Retrieval Benchmark' of DeepFashion"
_PARTS = {"train": ("train", "both"), "query": ("test", "query"), "gallery": ("test", "gallery")}
_HEADER = 2  # the number of images, then the names of the columns


@benchmark_set(
    "inshop",
    title="In-Shop",
    marker="Eval/list_eval_partition.txt|list_eval_partition.txt",
    archives=_ARCHIVE,
    licence="non-commercial research",
    counts=(Count("train", 3_997, 25_882), Count("query", 3_985, 14_218), Count("gallery", 3_985, 12_612)),
    boxes=True,
)
def inshop(root: Path, boxes: bool) -> list[ImageRow]:
    """Lines are image_name item_id evaluation_status; image names start with img/."""
    listed = first_existing(root, "Eval/list_eval_partition.txt", "list_eval_partition.txt", archive=_ARCHIVE)
    images = first_existing(root, "Img/img", "img", archive=f"img.zip of {_ARCHIVE}").parent
    box_of = _boxes(root) if boxes else {}
    rows = []
    for name, item, part in table(listed, 3, _ARCHIVE, skip=_HEADER):
        if part not in _PARTS:
            raise TophitError(f"{listed}: '{part}' must be one of {', '.join(_PARTS)}.")
        rows.append(ImageRow(images / name, item, *_PARTS[part], box=box_of.get(name)))
    expected = listed.read_text(encoding="utf-8-sig").split(maxsplit=1)[0]
    if number(expected, listed, "its first line") != len(rows):
        raise TophitError(
            f"{listed}: the first line says {expected} images, but it lists {len(rows)}; it is incomplete."
        )
    return rows


def _boxes(root: Path) -> dict[str, Box]:
    """Return the box of each image; lines are name, kind of clothes, pose, x1, y1, x2, y2."""
    path = first_existing(root, "Anno/list_bbox_inshop.txt", "list_bbox_inshop.txt", archive=_ARCHIVE)
    found: dict[str, Box] = {}
    for name, _, _, *corners in table(path, 7, _ARCHIVE, skip=_HEADER):
        x1, y1, x2, y2 = numbers(corners, path)
        if x1 < x2 and y1 < y2:
            found[name] = x1, y1, x2, y2
    return found
