"""The pictures of a report: each image once, small, inside the page or, if they are many, in a folder next to it."""

import base64
import io
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from PIL import Image, ImageOps

from tophit.data.item_rows import item_id
from tophit.data.manifest import ImageRow
from tophit.images.decode import BadImage, read_image
from tophit.progress import Progress

INSIDE_BYTES = 20_000_000  # of pictures in the page; if there are more, all go into a folder
LARGE, SMALL = 144, 72  # pixels of the longer side: in a list, and only on the map
_QUALITY = 78
_AT_A_TIME = 256


@dataclass
class Pictures:
    """The images that a report shows, numbered in the order in which they are added."""

    numbers: dict[str, int] = field(default_factory=dict)
    rows: list[ImageRow] = field(default_factory=list)
    large: set[int] = field(default_factory=set)

    def add(self, row: ImageRow, large: bool = True) -> int:
        """Add an image and return its number; ``large`` if it is shown in a list and not only on the map."""
        number = self.numbers.setdefault(item_id(row), len(self.rows))
        if number == len(self.rows):
            self.rows.append(row)
        if large:
            self.large.add(number)
        return number


class Thumbnails:
    """The small pictures of some images: base64 for data URLs while they fit into the page, else files in a new folder.

    ``made`` has each image's data as base64, or the name of its file, or None if it can't be read. ``folder`` is
    temporary; ``place`` moves it next to the page. Use it in a with statement.
    """

    def __init__(self, pictures: Pictures, beside: Path, inside: int = INSIDE_BYTES) -> None:
        self.pictures, self.beside, self.inside = pictures, beside, inside
        self.made: list[str | None] = []
        self.folder: Path | None = None

    def __enter__(self) -> "Thumbnails":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def make(self, progress: Progress | None = None) -> "Thumbnails":
        """Read and encode all images, some at a time."""
        numbers = range(len(self.pictures.rows))
        held = 0
        with ThreadPoolExecutor(4) as workers:
            parts = range(0, len(numbers), _AT_A_TIME)
            for start in progress(parts, len(parts)) if progress else parts:
                for data in workers.map(self._encoded, numbers[start : start + _AT_A_TIME]):
                    self._keep(data)
                    held += 0 if data is None else -(-len(data) // 3) * 4
                if self.folder is None and held > self.inside:
                    self._move_out()
        return self

    def name(self, page: Path) -> str:
        """Return the name of the folder next to the page; empty if there is none."""
        return "" if self.folder is None else f"{page.stem}_files"

    def describe(self, page: Path) -> dict[str, Any]:
        """Return the label, the name and the picture (or None) of each image for the page."""
        rows = self.pictures.rows
        labels = list(dict.fromkeys(row.label for row in rows))
        numbers = {label: number for number, label in enumerate(labels)}
        return {
            "labels": labels,
            "label": [numbers[row.label] for row in rows],
            "name": [image_name(row) for row in rows],
            "data": self.made,
            "folder": self.name(page),
        }

    def place(self, page: Path) -> None:
        """Move the folder next to the page; it replaces an older one."""
        final = page.parent / f"{page.stem}_files"
        old = final.with_name(f".{final.name}.old")
        if final.is_dir():
            final.replace(old)
        if self.folder is not None:
            self.folder.chmod(0o755)
            self.folder.replace(final)
            self.folder = None
        shutil.rmtree(old, ignore_errors=True)

    def _encoded(self, number: int) -> bytes | None:
        side = LARGE if number in self.pictures.large else SMALL
        row = self.pictures.rows[number]
        try:
            picture = read_image(row.path, row.box, least_side=side)
        except (BadImage, OSError):
            return None
        picture = (
            ImageOps.contain(picture, (side, side), Image.Resampling.LANCZOS) if max(picture.size) > side else picture
        )
        out = io.BytesIO()
        picture.save(out, "WEBP", quality=_QUALITY, method=4)
        return out.getvalue()

    def _keep(self, data: bytes | None) -> None:
        if data is None:
            self.made.append(None)
        elif self.folder is None:
            self.made.append(base64.b64encode(data).decode("ascii"))
        else:
            self.made.append(self._write(len(self.made), data))

    def _move_out(self) -> None:
        """Write all pictures made so far into a folder."""
        self.folder = Path(tempfile.mkdtemp(prefix=".report_files.", dir=self.beside))
        for number, text in enumerate(self.made):
            if text is not None:
                self.made[number] = self._write(number, base64.b64decode(text))

    def _write(self, number: int, data: bytes) -> str:
        assert self.folder is not None
        name = f"{number // 1000:03d}/{number:06d}.webp"
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return name


def image_name(row: ImageRow) -> str:
    """Return the name of an image on the page: its file and its folder."""
    return "/".join(row.path.parts[-2:])
