"""Stanford Online Products: products from eBay. Its two lists are the split; the 12 super-classes are metadata."""

from pathlib import Path

from tophit.data.manifest import ImageRow
from tophit.data.sets.benchmark import Count, benchmark_set
from tophit.data.sets.layout import table

_ARCHIVE = "Stanford_Online_Products.zip"


@benchmark_set(
    "sop",
    title="Stanford Online Products",
    marker="Ebay_train.txt",
    archives=_ARCHIVE,
    licence="none stated; photos by eBay sellers, for research",
    counts=(Count("train", 11_318, 59_551), Count("test", 11_316, 60_502)),
)
def sop(root: Path, boxes: bool) -> list[ImageRow]:
    """Lines are image_id class_id super_class_id path, under a header."""
    rows = []
    for split in ("train", "test"):
        for _, label, _, path in table(root / f"Ebay_{split}.txt", 4, _ARCHIVE, skip=1):
            kind = path.split("/")[0].removesuffix("_final")
            rows.append(ImageRow(root / path, label, split, metadata={"super_class": kind}))
    return rows
