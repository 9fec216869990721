"""Images as a torch data set: a bad file becomes a note, not a crash."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from tophit.data.decode import BadImage, read_image
from tophit.data.manifest import ImageRow
from tophit.data.preprocessing import Preprocessing


@dataclass(frozen=True)
class Augmentation:
    """Random views for training, drawn per image from (seed, epoch, row): independent of workers and order."""

    seed: int
    scale: tuple[float, float] = (1.0, 1.0)
    flip: bool = False


@dataclass
class Batch:
    """Images that could be read, with their row numbers, and the reasons for those that could not."""

    images: torch.Tensor  # (n, 3, size, size)
    rows: torch.Tensor  # (n,)
    bad: dict[int, str]


class ImageDataset(Dataset):
    """Rows of a manifest, read and preprocessed. ``epoch`` sets the random views when there is augmentation."""

    def __init__(
        self, rows: Sequence[ImageRow], preprocessing: Preprocessing, augmentation: Augmentation | None = None
    ) -> None:
        self.rows = rows
        self.preprocessing = preprocessing
        self.augmentation = augmentation
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[int, np.ndarray | str]:
        row = self.rows[index]
        try:
            image = read_image(row.path, row.box, self.preprocessing.least_side)
        except BadImage as error:
            return index, str(error)
        if self.augmentation is None:
            return index, self.preprocessing(image)
        generator = np.random.default_rng((self.augmentation.seed, self.epoch, index))
        view = self.preprocessing.training_view(image, generator, self.augmentation.scale, self.augmentation.flip)
        return index, view


def collate(items: Sequence[tuple[int, np.ndarray | str]]) -> Batch:
    """Join what could be read into one batch; the rest is noted by row number."""
    good = [(index, item) for index, item in items if not isinstance(item, str)]
    bad = {index: item for index, item in items if isinstance(item, str)}
    images = torch.from_numpy(np.stack([item for _, item in good])) if good else torch.empty(0)
    return Batch(images, torch.tensor([index for index, _ in good], dtype=torch.long), bad)


def image_loader(dataset: ImageDataset, batches: Iterable[Sequence[int]] | int, workers: int = 0) -> DataLoader[Any]:
    """Return a loader over given batches of row numbers, or over all rows in order in batches of a size."""
    # A loader draws a seed for its workers whenever it starts; from torch's own, a resumed run would draw once more.
    own = torch.Generator()
    if isinstance(batches, int):
        return DataLoader(dataset, batch_size=batches, collate_fn=collate, num_workers=workers, generator=own)
    return DataLoader(dataset, batch_sampler=batches, collate_fn=collate, num_workers=workers, generator=own)  # type: ignore[arg-type]
