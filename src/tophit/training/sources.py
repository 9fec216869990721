"""Where a training step's inputs come from: images read again each epoch, or cached features of a frozen backbone.

All processes embed rows together: each embeds a block, and all get the whole result, the same as from one process.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from tophit.batches import BatchSampler
from tophit.data.dataset import Batch, ImageDataset, ImageLoader, collate, normalised, view_key
from tophit.data.manifest import ImageRow, Manifest
from tophit.embedding.features import cached_features
from tophit.embedding.rows import EmbeddedRows, embed_rows
from tophit.errors import TophitError, UsageError
from tophit.images.decoded import decoded_cache
from tophit.images.views import Augmentation
from tophit.methods import Stepper, TrainingBatch
from tophit.models.embedder import Embedder
from tophit.models.runtimes import Features
from tophit.progress import Progress
from tophit.recipe import Recipe
from tophit.training.class_numbers import ClassNumbers, class_numbers

_BATCH = 64  # blocks are whole batches of the loader, so that every image is always computed in the same batch
MakeSampler = Callable[[ClassNumbers], BatchSampler]


class BadImages:
    """Counts unreadable images and stops the run when there are more than the recipe allows."""

    def __init__(self, limit: int, note: Callable[[str], None]) -> None:
        self.limit = limit
        self.note = note
        self.reasons: dict[int, str] = {}

    def add(self, row: int, reason: str, enforce: bool = True) -> None:
        """Report the image in a row of the manifest (from 1), once; if ``enforce``, raise when there are too many."""
        if row in self.reasons:
            return
        self.reasons[row] = reason
        self.note(f"Skipped an unreadable image, row {row}: {reason}")
        if enforce and len(self.reasons) > self.limit:
            raise TophitError(
                f"More unreadable images than data.max_bad_images allows ({self.limit}). List all of them with "
                "'tophit data check', fix or remove them, or allow more with --set data.max_bad_images=N."
            )


class Source(Protocol):
    """Gives a training loop its batches, and the vectors of the validation rows."""

    sampler: BatchSampler
    classes: int
    class_names: list[str]  # in the order of the class numbers
    images: Sequence[ImageRow]  # what is learned from, in the order of ``labels``
    labels: torch.Tensor
    numbers: ClassNumbers  # of every training row that can be read

    def batches(self, epoch: int, first: int) -> Iterator[TrainingBatch]:
        """Yield an epoch's batches from number ``first`` on."""
        ...

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map a batch's inputs to embeddings."""
        ...

    def embed_raw(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map a batch's inputs to embeddings that are not normalised."""
        ...

    def pooled(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map a batch's inputs to pooled features, which the head takes."""
        ...

    def validation_vectors(self) -> EmbeddedRows:
        """Embed the validation rows with the current embedder."""
        ...

    def training_vectors(self) -> np.ndarray:
        """Embed the training rows (N, dim) with the current embedder; an unreadable one is 0."""
        ...

    def paths(self, rows: torch.Tensor) -> list[Path]:
        """Return the files of rows of a batch."""
        ...

    def close(self) -> None:
        """Stop what is still running for the source."""
        ...


def row_batches(sampler: BatchSampler, epoch: int, first: int) -> Iterator[list[int]]:
    """Yield the rows of an epoch's batches from number ``first`` on, each drawn on demand."""
    sampler.epoch = epoch
    if is_stream(sampler):  # its state is already at ``first``
        return islice(sampler, len(sampler) - first)
    return islice(sampler, first, None)


def is_stream(sampler: BatchSampler) -> bool:
    """Return whether a sampler's batches depend on what was learned before, so that none may be drawn ahead."""
    return getattr(sampler, "is_stream", False)


class CachedSource(ABC):
    """What sources have in common whose inputs were computed before training: a batch is a look-up.

    ``good`` are the readable rows of ``train``; a batch's rows are numbers among them.
    """

    def __init__(
        self,
        embedder: Embedder,
        train: Manifest,
        good: Sequence[int],
        stepper: Stepper,
        make_sampler: MakeSampler,
        takes_paths: bool,
    ) -> None:
        self.embedder = embedder
        self.stepper = stepper
        self.images: Sequence[ImageRow] = [train.rows[i] for i in good]
        self.numbers = class_numbers(self.images, takes_paths)
        self.class_names, self.classes = self.numbers.names, len(self.numbers.names)
        self.labels = self.numbers.for_loss.to(embedder.device)
        self.sampler = make_sampler(self.numbers)

    @abstractmethod
    def inputs(self, rows: torch.Tensor, epoch: int) -> torch.Tensor:
        """Return the inputs (N, ...) of rows (N,) in an epoch."""

    @abstractmethod
    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map a batch's inputs to embeddings."""

    @abstractmethod
    def embed_raw(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map a batch's inputs to embeddings that are not normalised."""

    @abstractmethod
    def pooled(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map a batch's inputs to pooled features, which the head takes."""

    @abstractmethod
    def validation_vectors(self) -> EmbeddedRows:
        """Embed the validation rows with the current embedder."""

    @torch.inference_mode()
    def training_vectors(self) -> np.ndarray:
        """Embed the training rows (N, dim) with the current embedder, from their first views."""
        self.embedder.eval()
        parts = torch.arange(len(self.labels)).split(_BATCH)
        return np.concatenate([self.embed(self.inputs(part, 0)).cpu().numpy() for part in parts])

    def batches(self, epoch: int, first: int) -> Iterator[TrainingBatch]:
        """Yield an epoch's batches from number ``first`` on."""
        for rows in row_batches(self.sampler, epoch, first):
            index = torch.as_tensor(rows)
            if self.stepper.world == 1:
                yield TrainingBatch(self.inputs(index, epoch), self.labels[index], index)
            else:
                own = torch.as_tensor(self.stepper.part_of(rows), dtype=torch.int64)
                parts = self.stepper.part_sizes(len(rows))
                yield TrainingBatch(self.inputs(own, epoch), self.labels[index], index, parts)

    def paths(self, rows: torch.Tensor) -> list[Path]:
        """Return the files of rows of a batch."""
        return [self.images[row].path for row in rows.tolist()]

    def close(self) -> None:  # noqa: B027  (nothing is running)
        """Do nothing: there are no processes to stop."""


class FeatureSource(CachedSource):
    """Cached features: head training takes seconds."""

    def __init__(
        self,
        embedder: Embedder,
        train: Manifest,
        validation: Manifest,
        bad: BadImages,
        progress: Progress | None,
        stepper: Stepper,
        make_sampler: MakeSampler,
        takes_paths: bool = False,
    ) -> None:
        features = shared_features(stepper, embedder, train.rows, progress)
        for row, reason in features.bad.items():
            bad.add(train.number(row), reason)
        self.validation = shared_features(stepper, embedder, validation.rows, progress)
        self.features = torch.from_numpy(features.values).to(embedder.device)
        super().__init__(embedder, train, features.rows, stepper, make_sampler, takes_paths)

    def inputs(self, rows: torch.Tensor, epoch: int) -> torch.Tensor:
        """Return the features (N, channels) of rows."""
        return self.features[rows]

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map features (N, channels) to embeddings (N, dim)."""
        return self.embedder.embed_features(inputs)

    def embed_raw(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map features (N, channels) to the head's output (N, dim), not normalised."""
        return self.embedder.head(inputs)

    def pooled(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the features themselves."""
        return inputs

    def validation_vectors(self) -> EmbeddedRows:
        """Embed the validation rows from their features."""
        features = self.validation
        return EmbeddedRows(self.embedder.embed_arrays(features.values), features.rows, features.bad)


class ImageSource:
    """Images read and augmented again each epoch, for training the whole network."""

    def __init__(
        self,
        recipe: Recipe,
        embedder: Embedder,
        train: Manifest,
        validation: Manifest,
        bad: BadImages,
        stepper: Stepper,
        make_sampler: MakeSampler,
        takes_paths: bool = False,
    ) -> None:
        self.stepper = stepper
        self.embedder = embedder
        self.train = train
        self.validation = validation
        self.bad = bad
        self.workers = recipe.data.workers
        self.sizes, self.epochs = recipe.schedule.sizes, recipe.schedule.epochs
        augmentation = Augmentation(recipe.seed, **recipe.augment.of_views())
        own = embedder.preprocessing.size
        if max(self.sizes, default=own) > own:
            raise UsageError(
                f"schedule.sizes: {max(self.sizes)} is more than the {own} pixels that evaluation uses; raise "
                "embedder.size, or use smaller sizes."
            )
        side = augmentation.least_side(embedder.preprocessing)
        pictures = [(row.path, row.box) for row in train.rows]
        self.cache = decoded_cache(recipe.data.cache, pictures, side, recipe.data.cache_gb)
        self.dataset = ImageDataset(train.rows, embedder.preprocessing, augmentation, self.cache)
        self.loader = ImageLoader(self.dataset, self.workers)
        self.images: Sequence[ImageRow] = train.rows
        self.numbers = class_numbers(train.rows, takes_paths)
        self.class_names, self.classes = self.numbers.names, len(self.numbers.names)
        self.labels = self.numbers.for_loss
        self.sampler = make_sampler(self.numbers)

    def batches(self, epoch: int, first: int) -> Iterator[TrainingBatch]:
        """Yield an epoch's batches of images from number ``first`` on; the stepper moves them to its device."""
        device = self.embedder.device
        for batch in self._read(epoch, first):
            rows, bad, parts = self._of_all(batch)
            for row, reason in bad.items():
                self.bad.add(self.train.number(row), reason)
            yield TrainingBatch(batch.images, self.labels[rows].to(device), rows, parts)

    def _of_all(self, batch: Batch) -> tuple[torch.Tensor, dict[int, str], list[int] | None]:
        """Return the rows and bad images of all processes' parts of a batch, and the lengths of the parts."""
        if self.stepper.world == 1:
            return torch.as_tensor(batch.rows, dtype=torch.int64), batch.bad, None
        every = self.stepper.gather_objects((batch.rows.tolist(), batch.bad))
        rows = [row for part, _ in every for row in part]
        bad = {row: reason for _, part in every for row, reason in part.items()}
        return torch.as_tensor(rows, dtype=torch.int64), bad, [len(part) for part, _ in every]

    def _read(self, epoch: int, first: int) -> Iterator[Batch]:
        rows, side = row_batches(self.sampler, epoch, first), self._side(epoch)
        if not is_stream(self.sampler):
            yield from self.loader.read([self.stepper.part_of(batch) for batch in rows], epoch, side)
            return
        # A batch may depend on what was learned from the previous one, so none is read ahead: threads share each batch.
        with ThreadPoolExecutor(max(1, self.workers)) as pool:
            for batch in rows:
                drawn = getattr(self.sampler, "drawn", epoch)  # a representative gets a new random view in every batch
                keys = [view_key(drawn, row, side) for row in self.stepper.part_of(batch)]
                read = collate(list(pool.map(self.dataset.__getitem__, keys)))
                yield normalised(read, self.dataset.preprocessing)

    def _side(self, epoch: int) -> int | None:
        """Return the side of an epoch's views; None: the embedder's."""
        return self.sizes[epoch * len(self.sizes) // self.epochs] if self.sizes else None

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images (N, 3, H, W) to embeddings (N, dim)."""
        return self.embedder(inputs)

    def embed_raw(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images (N, 3, H, W) to the head's output (N, dim), not normalised."""
        return self.embedder.head(self.embedder.features(inputs))

    def pooled(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images (N, 3, H, W) to pooled features (N, channels)."""
        return self.embedder.features(inputs)

    def validation_vectors(self) -> EmbeddedRows:
        """Embed the validation rows from their images."""
        return shared_embeddings(self.stepper, self.embedder, self.validation.rows, final=False)

    def training_vectors(self) -> np.ndarray:
        """Embed the training rows (N, dim) from their images; an unreadable one is 0."""
        found = shared_embeddings(self.stepper, self.embedder, self.train.rows, final=False)
        vectors = np.zeros((len(self.train.rows), self.embedder.dim), np.float32)
        vectors[found.rows] = found.vectors
        return vectors

    def paths(self, rows: torch.Tensor) -> list[Path]:
        """Return the files of rows of a batch."""
        return [self.train.rows[row].path for row in rows.tolist()]

    def close(self) -> None:
        """Stop the processes that read images, and release the cache's memory."""
        self.loader.close()
        if self.cache is not None:
            self.cache.close()


def shared_embeddings(
    stepper: Stepper, embedder: Embedder, rows: Sequence[ImageRow], progress: Progress | None = None, final: bool = True
) -> EmbeddedRows:
    """Embed rows; see ``embed_rows``."""

    def embed(part: Sequence[ImageRow]) -> tuple[np.ndarray, list[int], dict[int, str]]:
        found = embed_rows(embedder, part, progress, final, total=len(rows))
        return found.vectors, found.rows, found.bad

    return EmbeddedRows(*_shared(stepper, rows, embed))


def shared_features(
    stepper: Stepper, embedder: Embedder, rows: Sequence[ImageRow], progress: Progress | None = None
) -> Features:
    """Return pooled features of rows; see ``cached_features``."""

    def compute(part: Sequence[ImageRow]) -> tuple[np.ndarray, list[int], dict[int, str]]:
        found = cached_features(embedder, part, progress, total=len(rows))
        return found.values, found.rows, found.bad

    return Features(*_shared(stepper, rows, compute))


def _shared(
    stepper: Stepper,
    rows: Sequence[ImageRow],
    compute: Callable[[Sequence[ImageRow]], tuple[np.ndarray, list[int], dict[int, str]]],
) -> tuple[np.ndarray, list[int], dict[int, str]]:
    if stepper.world == 1:
        return compute(rows)
    blocks = -(-len(rows) // _BATCH)
    first, last = (_BATCH * (blocks * rank // stepper.world) for rank in (stepper.rank, stepper.rank + 1))
    values, good, bad = compute(rows[first:last])
    parts = stepper.gather_objects((values, [first + i for i in good], {first + i: why for i, why in bad.items()}))
    return (
        np.concatenate([part[0] for part in parts]),
        [row for part in parts for row in part[1]],
        {row: why for part in parts for row, why in part[2].items()},
    )
