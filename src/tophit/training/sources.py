"""Where a training step's inputs come from: images read again each epoch, or cached features of a frozen backbone."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol

import numpy as np
import torch

from tophit.batches import BalancedBatchSampler, RandomBatchSampler, RepresentativeBatchSampler
from tophit.data.dataset import Augmentation, Batch, ImageDataset, collate, image_loader
from tophit.data.embedding import EmbeddedRows, embed_rows
from tophit.data.features import cached_features
from tophit.data.manifest import Manifest
from tophit.errors import TophitError, UsageError
from tophit.methods import TrainingBatch
from tophit.models.embedder import Embedder
from tophit.progress import Progress
from tophit.recipe import Recipe

Sampler = BalancedBatchSampler | RandomBatchSampler | RepresentativeBatchSampler


class BadImages:
    """Counts unreadable images and stops the run when there are more than the recipe allows."""

    def __init__(self, limit: int, note: Callable[[str], None]) -> None:
        self.limit = limit
        self.note = note
        self.reasons: dict[int, str] = {}

    def add(self, row: int, reason: str, enforce: bool = True) -> None:
        """Note the image in a row of the manifest (from 1), once; too many of them raise, if that is enforced."""
        if row in self.reasons:
            return
        self.reasons[row] = reason
        self.note(f"Skipped an unreadable image, row {row}: {reason}")
        if enforce and len(self.reasons) > self.limit:
            raise TophitError(
                f"More unreadable images than data.max_bad_images allows ({self.limit}). See all of them with "
                "'tophit data check', mend or remove them, or allow more with --set data.max_bad_images=N."
            )


class Source(Protocol):
    """Gives a training loop its batches, and the vectors of the validation rows."""

    sampler: Sampler
    classes: int

    def batches(self, epoch: int, first: int) -> Iterator[TrainingBatch]:
        """Yield an epoch's batches from number ``first`` on."""
        ...

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map a batch's inputs to embeddings."""
        ...

    def embed_raw(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map a batch's inputs to embeddings that are not normalised."""
        ...

    def validation_vectors(self) -> EmbeddedRows:
        """Embed the validation rows with the embedder as it is now."""
        ...


def make_sampler(recipe: Recipe, labels: Sequence[int]) -> Sampler:
    """Return the batch sampler the recipe names."""
    batches, method = recipe.batches, recipe.method
    if method.name == "projection":
        if batches.sampler != "balanced" or batches.repeat_small_classes:
            raise UsageError(
                "batches: the method projection makes batches of classes x per_class images without repeats; "
                "set batches.sampler to balanced and leave out batches.repeat_small_classes."
            )
        size = batches.classes, batches.per_class
        return RepresentativeBatchSampler(labels, *size, recipe.seed, method.rho, method.steps, method.hncm)
    if batches.sampler == "random":
        return RandomBatchSampler(len(labels), batches.size, recipe.seed)
    return BalancedBatchSampler(labels, batches.classes, batches.per_class, recipe.seed, batches.repeat_small_classes)


def row_batches(sampler: Sampler, epoch: int, first: int) -> Iterator[list[int]]:
    """Yield the rows of an epoch's batches from number ``first`` on, each drawn when it is asked for."""
    sampler.epoch = epoch
    if isinstance(sampler, RepresentativeBatchSampler):  # its state stands at ``first`` already
        return islice(sampler, len(sampler) - first)
    return islice(sampler, first, None)


class FeatureSource:
    """Cached features: a batch is a look-up, so head training takes seconds."""

    def __init__(
        self,
        recipe: Recipe,
        embedder: Embedder,
        train: Manifest,
        validation: Manifest,
        bad: BadImages,
        progress: Progress | None,
    ) -> None:
        features = cached_features(embedder, train.rows, progress)
        for row, reason in features.bad.items():
            bad.add(train.number(row), reason)
        self.embedder = embedder
        self.validation = cached_features(embedder, validation.rows, progress)
        self.features = torch.from_numpy(features.values).to(embedder.device)
        names, labels = np.unique(np.asarray([train.rows[i].label for i in features.rows]), return_inverse=True)
        self.classes = len(names)
        self.labels = torch.from_numpy(labels).to(embedder.device)
        self.sampler = make_sampler(recipe, labels.tolist())

    def batches(self, epoch: int, first: int) -> Iterator[TrainingBatch]:
        """Yield an epoch's batches of features from number ``first`` on."""
        for rows in row_batches(self.sampler, epoch, first):
            yield TrainingBatch(self.features[rows], self.labels[rows], torch.as_tensor(rows))

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map features (N, channels) to embeddings (N, dim)."""
        return self.embedder.embed_features(inputs)

    def embed_raw(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map features (N, channels) to the head's output (N, dim), not normalised."""
        return self.embedder.head(inputs)

    def validation_vectors(self) -> EmbeddedRows:
        """Embed the validation rows from their features."""
        features = self.validation
        return EmbeddedRows(self.embedder.embed_arrays(features.values), features.rows, features.bad)


class ImageSource:
    """Images read and augmented anew each epoch, for training the whole network."""

    def __init__(
        self, recipe: Recipe, embedder: Embedder, train: Manifest, validation: Manifest, bad: BadImages
    ) -> None:
        self.embedder = embedder
        self.train = train
        self.validation = validation
        self.bad = bad
        self.workers = recipe.data.workers
        augmentation = Augmentation(recipe.seed, recipe.augment.scale, recipe.augment.flip)
        self.dataset = ImageDataset(train.rows, embedder.preprocessing, augmentation)
        names, labels = np.unique(np.asarray(train.labels), return_inverse=True)
        self.classes = len(names)
        self.labels = torch.from_numpy(labels)
        self.sampler = make_sampler(recipe, labels.tolist())

    def batches(self, epoch: int, first: int) -> Iterator[TrainingBatch]:
        """Yield an epoch's batches of images from number ``first`` on."""
        device = self.embedder.device
        for batch in self._read(epoch, first):
            for row, reason in batch.bad.items():
                self.bad.add(self.train.number(row), reason)
            rows = torch.as_tensor(batch.rows, dtype=torch.int64)
            yield TrainingBatch(batch.images.to(device), self.labels[rows].to(device), rows)

    def _read(self, epoch: int, first: int) -> Iterator[Batch]:
        rows = row_batches(self.sampler, epoch, first)
        if not isinstance(self.sampler, RepresentativeBatchSampler):
            self.dataset.epoch = epoch
            yield from image_loader(self.dataset, list(rows), self.workers)
            return
        # A batch may depend on what was learned from the one before, so none is read ahead: threads share each batch.
        with ThreadPoolExecutor(max(1, self.workers)) as pool:
            for batch in rows:
                self.dataset.epoch = self.sampler.drawn  # a representative gets a new random view in every batch
                yield collate(list(pool.map(self.dataset.__getitem__, batch)))

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images (N, 3, H, W) to embeddings (N, dim)."""
        return self.embedder(inputs)

    def embed_raw(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map images (N, 3, H, W) to the head's output (N, dim), not normalised."""
        return self.embedder.head(self.embedder.features(inputs))

    def validation_vectors(self) -> EmbeddedRows:
        """Embed the validation rows from their images."""
        return embed_rows(self.embedder, self.validation.rows, final=False)
