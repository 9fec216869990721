"""What the data of a run are: numbers of images and classes, and the sizes of the pictures."""

import statistics
from collections import Counter
from dataclasses import dataclass

from PIL import Image

from tophit.data.feature_files import feature_file_of
from tophit.data.manifest import Manifest
from tophit.training.run_rows import RunRows

_SAMPLE = 100


@dataclass(frozen=True)
class Survey:
    """Numbers of images and classes by split, training images per class, and the pictures' median sides in pixels."""

    images: dict[str, int]
    classes: dict[str, int]
    least_per_class: int
    median_per_class: float
    most_per_class: int
    width: int | None  # None for features, or where no picture can be opened
    height: int | None
    bytes_each: int | None

    def sentences(self) -> list[str]:
        """Say it in words."""
        splits = ", ".join(
            f"{self.images[name]:,} of {self.classes[name]:,} classes for {name}" for name in self.images
        )
        least, most = self.least_per_class, self.most_per_class
        per_class = f"{least}" if least == most else f"{least} to {most}, median {self.median_per_class:g}"
        found = [f"{sum(self.images.values()):,} images: {splits}.", f"Training images per class: {per_class}."]
        if self.width is not None and self.bytes_each is not None:
            size = f"{self.width} x {self.height} pixels, {self.bytes_each / 1000:,.0f} kB"
            found.append(f"A typical picture: {size}.")
        return found


def survey(rows: RunRows) -> Survey:
    """Look at the data of a run; pictures are a sample, of which only the first bytes are read."""
    parts: dict[str, Manifest] = {"training": rows.train, "validation": rows.validation, "testing": rows.test}
    counts = sorted(Counter(rows.train.labels).values())
    sizes: list[tuple[int, int, int]] = []
    step = max(1, len(rows.train) // _SAMPLE)
    for row in rows.train.rows[::step] if feature_file_of(rows.train.rows) is None else ():
        try:
            with Image.open(row.path) as picture:
                sizes.append((*picture.size, row.path.stat().st_size))
        except OSError:  # 'tophit data check' lists what can't be read
            continue
    medians = [int(statistics.median(each)) for each in zip(*sizes, strict=True)] if sizes else [None] * 3
    return Survey(
        {name: len(part) for name, part in parts.items()},
        {name: len(set(part.labels)) for name, part in parts.items()},
        counts[0],
        statistics.median(counts),
        counts[-1],
        *medians,
    )
