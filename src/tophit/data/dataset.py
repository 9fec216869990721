"""Images as a torch data set: a bad file is reported, not raised."""

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from tophit.data.ahead import ahead
from tophit.errors import TophitError
from tophit.images.decode import BadImage, Box, ImageInput, read_image
from tophit.images.decoded import DecodedCache
from tophit.images.preprocessing import Preprocessing, resized
from tophit.images.views import Augmentation, training_pixels

Key = int | tuple[int, int] | tuple[int, int, int]  # a row; an epoch and a row; and a side other than the usual
_TOLD_WITHIN = 5.0  # seconds in which the signal of a dead worker arrives, on any machine
_PATIENCE = 600.0  # seconds to wait for a batch before reading counts as stuck


class PictureSource(Protocol):
    """A picture to be read: a row of a manifest, or anything else with a path (or an image) and a box."""

    @property
    def path(self) -> ImageInput:
        """The file, or the picture itself."""
        ...

    @property
    def box(self) -> Box | None:
        """The part of the picture that is used."""
        ...


@dataclass
class Batch:
    """The images that could be read, with their row numbers, and for each unreadable image the reason."""

    images: torch.Tensor  # (n, 3, size, size) float32; as returned by collate, (n, size, size, 3) uint8
    rows: torch.Tensor  # (n,)
    bad: dict[int, str]


class ImageDataset(Dataset):
    """Rows of a manifest, read as 8-bit views; with augmentation, random views that change with each epoch."""

    def __init__(
        self,
        rows: Sequence[PictureSource],
        preprocessing: Preprocessing,
        augmentation: Augmentation | None = None,
        cache: DecodedCache | None = None,
    ) -> None:
        self.rows = rows
        self.preprocessing = preprocessing
        self.augmentation = augmentation
        self.cache = cache
        self.least_side = augmentation.least_side(preprocessing) if augmentation else preprocessing.least_side
        self._last: tuple[int, np.ndarray] | None = None  # several views of one picture need it decoded once

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Key) -> tuple[int, np.ndarray | str]:
        epoch, index, *side = key if isinstance(key, tuple) else (0, key)
        try:
            pixels = self._decoded(index)
        except BadImage as error:
            return index, str(error)
        if self.augmentation is None:
            return index, self.preprocessing.pixels(pixels)
        preprocessing = replace(self.preprocessing, size=side[0]) if side else self.preprocessing
        generator = self.augmentation.generator(epoch, index)
        return index, training_pixels(preprocessing, pixels, self.augmentation, generator)

    def _decoded(self, index: int) -> np.ndarray:
        """Return a row's picture (H, W, 3), from the cache if it is there; never much larger than needed."""
        last = self._last  # threads may share the data set
        if last is not None and last[0] == index:
            return last[1]
        pixels = self._read(index)
        self._last = index, pixels
        return pixels

    def _read(self, index: int) -> np.ndarray:
        kept = self.cache.get(index) if self.cache else None
        if kept is not None:
            return kept
        row = self.rows[index]
        pixels = np.asarray(read_image(row.path, row.box, self.least_side))
        if self.cache is not None:
            pixels = _no_larger(pixels, self.least_side)
            self.cache.put(index, pixels)
        return pixels


def _no_larger(pixels: np.ndarray, side: int) -> np.ndarray:
    """Return a picture whose short side is at most ``side``."""
    height, width = pixels.shape[:2]
    ratio = side / min(height, width)
    if ratio >= 1:
        return pixels
    wanted = max(side, round(width * ratio)), max(side, round(height * ratio))
    return resized(pixels, (0, 0, width, height), wanted)


def collate(items: Sequence[tuple[int, np.ndarray | str]]) -> Batch:
    """Join the readable images into one 8-bit batch; record the reasons for the others by row number."""
    good = [(index, item) for index, item in items if not isinstance(item, str)]
    bad = {index: item for index, item in items if isinstance(item, str)}
    images = torch.from_numpy(np.stack([item for _, item in good])) if good else torch.empty(0)
    return Batch(images, torch.tensor([index for index, _ in good], dtype=torch.long), bad)


def normalised(batch: Batch, preprocessing: Preprocessing) -> Batch:
    """Return a batch normalised for a backbone."""
    return replace(batch, images=preprocessing.normalise(batch.images)) if len(batch.rows) else batch


def view_key(epoch: int, row: int, side: int | None = None) -> Key:
    """Return the key of a row's random view in an epoch."""
    return (epoch, row) if side is None else (epoch, row, side)


class _Batches:
    """The batches of an epoch, replaced before each epoch, so that one loader's workers serve all epochs."""

    def __init__(self) -> None:
        self.keys: Sequence[Sequence[Key]] = []

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Sequence[Key]]:
        return iter(self.keys)


class ImageLoader:
    """Reads batches of rows, in this process or in workers that live until ``close`` or as long as the loader."""

    def __init__(self, dataset: ImageDataset, workers: int = 0) -> None:
        self.dataset = dataset
        self.batches = _Batches()
        self.loader: DataLoader[Batch] | None = None
        if workers:
            # A loader draws a seed for its workers when it starts. With torch's global generator, a resumed run would
            # draw once more than an uninterrupted one.
            self.loader = DataLoader(
                dataset,
                batch_sampler=self.batches,  # type: ignore[arg-type]
                collate_fn=collate,
                num_workers=workers,
                persistent_workers=True,
                timeout=_PATIENCE,
                worker_init_fn=_stand_apart,
                generator=torch.Generator(),
            )

    def read(self, batches: Sequence[Sequence[int]], epoch: int = 0, side: int | None = None) -> Iterator[Batch]:
        """Yield the images of batches of row numbers, with the random views of an epoch, of another side if given."""
        for batch in self.pixels([[view_key(epoch, row, side) for row in rows] for rows in batches]):
            yield normalised(batch, self.dataset.preprocessing)

    def pixels(self, batches: Sequence[Sequence[Key]]) -> Iterator[Batch]:
        """Yield the 8-bit views of batches of keys, not normalised."""
        self.batches.keys = batches
        here = (collate([self.dataset[key] for key in keys]) for keys in self.batches)
        try:
            try:
                yield from self.loader or here
            except (ConnectionError, EOFError):
                # The worker is dying. torch reports its end from a signal handler, whose error ends this sleep at once;
                # without the sleep that error would be raised later, wherever the program is by then.
                time.sleep(_TOLD_WITHIN)
                raise
        except (RuntimeError, ConnectionError, EOFError) as error:
            raise explained(error) from error

    def close(self) -> None:
        """Stop the workers."""
        self.loader = None


def _stand_apart(worker: int) -> None:
    """Leave Ctrl-C, and signals to the whole process group, to the process that trains."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setpgrp()


def explained(error: Exception) -> Exception:
    """Return a loader's error in words that help the user; any other error is returned unchanged."""
    text = str(error)
    # A worker that ends while it hands over a batch shows up as a broken connection.
    if "DataLoader worker" in text or isinstance(error, ConnectionError | EOFError):
        return TophitError(
            "A process that reads images was killed, most likely because memory ran out; lower data.workers, or "
            f"data.cache_gb if there is a cache. ({text.splitlines()[0] if text else type(error).__name__})"
        )
    if "DataLoader timed out" in text:
        return TophitError(f"No batch of images could be read in {_PATIENCE:.0f} seconds: is the disk still there?")
    return error


class ImageBatches:
    """Given batches of a data set, read once; ``len`` is their number, and the workers stop after the last.

    Without workers, a thread reads the next batches while the caller uses one: decoding needs no interpreter lock.
    """

    def __init__(self, dataset: ImageDataset, batches: Sequence[Sequence[int]], workers: int = 0) -> None:
        self.loader = ImageLoader(dataset, workers)
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Batch]:
        batches = self.loader.read(self.batches)
        yield from batches if self.loader.loader or len(self.batches) < 2 else ahead(batches)
        self.loader.close()


def image_loader(dataset: ImageDataset, batches: Iterable[Sequence[int]] | int, workers: int = 0) -> ImageBatches:
    """Return a reader of the given batches of row numbers; if ``batches`` is a size, of all rows in order."""
    if isinstance(batches, int):
        rows = range(len(dataset))
        batches = [rows[start : start + batches] for start in range(0, len(dataset), batches)]
    return ImageBatches(dataset, list(batches), workers)
