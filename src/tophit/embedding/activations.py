"""Cached activations: what the frozen first stages of a backbone give, computed once per view of an image and kept.

The key of a view is the file's content, its box, and how the view is drawn; the trunk's weights, the preprocessing and
the runtime name the folder. Random views are drawn from that key, so that runs with different seeds share them.
"""

import hashlib
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

import numpy as np
import torch

from tophit.data.dataset import ImageDataset, ImageLoader, Key
from tophit.data.manifest import ImageRow
from tophit.embedding.record_store import RecordStore, RecordWriter
from tophit.errors import TophitError, UsageError
from tophit.files import cache_folder
from tophit.images.preprocessing import VIEWS_VERSION
from tophit.images.views import Augmentation
from tophit.models.cut import Trunk, stage_shapes
from tophit.models.embedder import Embedder, digest
from tophit.models.feature_cache import content_key
from tophit.models.runtimes import BATCH, choose_runtime
from tophit.progress import View
from tophit.wording import readable_bytes

Precision = Literal["float16", "float32"]
_SIDES = 32  # sizes that are recommended are multiples of it


@dataclass(frozen=True)
class Wanted:
    """Rows, and how many random views of each are wanted; none: the plain view of evaluation."""

    rows: Sequence[ImageRow]
    views: int = 0

    @property
    def records(self) -> int:
        """How many activations that makes."""
        return len(self.rows) * max(1, self.views)


@dataclass(frozen=True)
class Activations:
    """The activations of the readable rows, and the reasons for the unreadable ones.

    ``values`` (records, ...) are mapped into memory: maps as (h, w, channels), tokens as (T, channels), or pixels as
    8 bits (h, w, 3). ``records`` (rows, views) says where each view is.
    """

    values: np.ndarray
    records: np.ndarray
    rows: list[int]
    bad: dict[int, str]

    @property
    def views(self) -> int:
        """The number of views of each row."""
        return self.records.shape[1]

    def read(self, rows: np.ndarray, views: np.ndarray | int = 0) -> torch.Tensor:
        """Return the activations of some of the readable rows, one view of each, as they are stored."""
        return torch.from_numpy(self.values[self.records[rows, views]])


def cached_activations(
    embedder: Embedder,
    frozen: int,
    wanted: Sequence[Wanted],
    augmentation: Augmentation,
    *,
    precision: Precision = "float16",
    most_gb: float = math.inf,
    workers: int = 0,
    view: View | None = None,
) -> list[Activations]:
    """Return the activations after the first ``frozen`` stages, computing only those that the cache does not have.

    Without frozen stages they are the pixels. What must be computed is told first; more than ``most_gb`` gigabytes, or
    than the disk has room for, is an error before anything is computed.
    """
    view = view or View()
    count = sum(each.records for each in wanted)
    source = _source_of(embedder, frozen, precision, count)
    if count * source.bytes_each > most_gb * 1e9:
        raise UsageError(
            _too_large(embedder, frozen, wanted, source, most_gb * 1e9, "data.activations_gb allows {room}")
        )
    store = RecordStore(cache_folder() / "activations" / source.name, source.shape, source.dtype)
    keys = [_view_keys(each, augmentation) for each in wanted]
    known = store.places(key for table in keys for row in table for key in row)
    missing = sum(key not in known for table in keys for row in table for key in row)
    bad: list[dict[int, str]] = [{} for _ in wanted]
    if missing:
        _tell(embedder, frozen, wanted, source, missing, store, view)
        with store.writing(lambda: view.note(_WAITING)) as writer:
            known |= store.places(key for table in keys for row in table for key in row)
            todo = [[(v, r) for r, row in enumerate(t) for v, key in enumerate(row) if key not in known] for t in keys]
            writer.reserve(sum(map(len, todo)))
            dataset = [_dataset(embedder, each, augmentation, table) for each, table in zip(wanted, keys, strict=True)]
            for i, each in enumerate(todo):
                bad[i] = _fill(writer, source, dataset[i], each, keys[i], workers, view)
        known = store.places(key for table in keys for row in table for key in row)
    return [_found(store, known, table, problems) for table, problems in zip(keys, bad, strict=True)]


_WAITING = "Another process is computing the same activations; waiting for it."


class _Source(Protocol):
    """From 8-bit views (n, size, size, 3) to records."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes_each(self) -> int: ...

    def compute(self, pixels: torch.Tensor) -> np.ndarray: ...


class _Pixels:
    """No stage is frozen: the views themselves."""

    dtype = np.dtype(np.uint8)

    def __init__(self, embedder: Embedder) -> None:
        preprocessing = embedder.preprocessing
        self.shape = (preprocessing.size, preprocessing.size, 3)
        shown = {name: getattr(preprocessing, name) for name in ("size", "crop", "squash")}
        self.name = f"{digest({}, [shown, VIEWS_VERSION])}-pixels"

    @property
    def bytes_each(self) -> int:
        return math.prod(self.shape)

    def compute(self, pixels: torch.Tensor) -> np.ndarray:
        return pixels.numpy()


class _Computed:
    """Activations of the trunk, by the fastest runtime for their number."""

    def __init__(self, embedder: Embedder, frozen: int, precision: Precision, count: int) -> None:
        trunk = Trunk(embedder, frozen)
        self.preprocessing = embedder.preprocessing
        self.runtime = choose_runtime(trunk, count)
        self.dtype, self.precision = np.dtype(precision), getattr(torch, precision)
        self.shape = _as_stored(stage_shapes(embedder)[frozen - 1])
        self.name = f"{trunk.feature_fingerprint()}-{self.runtime.name}-{precision}"

    @property
    def bytes_each(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def compute(self, pixels: torch.Tensor) -> np.ndarray:
        values = torch.from_numpy(self.runtime.compute(self.preprocessing.normalise(pixels).numpy()))
        if values.ndim == 4:
            values = values.permute(0, 2, 3, 1)
        stored = values.to(self.precision).contiguous()
        if not bool(stored.isfinite().all()):
            raise TophitError(
                "Activations are not finite numbers, or too large for float16; set data.activations: float32, or "
                "choose another cut with embedder.last."
            )
        return stored.numpy()


def _source_of(embedder: Embedder, frozen: int, precision: Precision, count: int) -> _Source:
    return _Computed(embedder, frozen, precision, count) if frozen else _Pixels(embedder)


def _as_stored(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of a record: channels last in memory is twice as fast to learn from."""
    if len(shape) < 3:
        return tuple(shape)
    channels, height, width = shape
    return height, width, channels


def as_input(embedder: Embedder, stored: torch.Tensor) -> torch.Tensor:
    """Map activations as they are stored to what the next stage takes: float32, channels last in memory."""
    if stored.dtype == torch.uint8:
        return embedder.preprocessing.normalise(stored)
    values = stored.float()
    return values.permute(0, 3, 1, 2) if values.ndim == 4 else values


# Views and their keys.


@dataclass(frozen=True)
class _ViewsByKey(Augmentation):
    """Random views that depend only on their keys."""

    keys: Sequence[Sequence[bytes]] = ()

    def generator(self, epoch: int, row: int) -> np.random.Generator:
        """Return the generator of one view (in place of the epoch) of one row."""
        return np.random.default_rng(int.from_bytes(self.keys[row][epoch], "big"))


def _view_keys(wanted: Wanted, augmentation: Augmentation) -> list[list[bytes]]:
    drawn = [(each.name, getattr(augmentation, each.name)) for each in fields(Augmentation) if each.name != "seed"]
    names = [repr((number, drawn)) for number in range(wanted.views)] or ["plain"]
    contents = [content_key(row) for row in wanted.rows]
    return [[hashlib.sha256(content + name.encode()).digest() for name in names] for content in contents]


def _dataset(embedder: Embedder, wanted: Wanted, augmentation: Augmentation, keys: list[list[bytes]]) -> ImageDataset:
    if not wanted.views:
        return ImageDataset(wanted.rows, embedder.preprocessing)
    options = {each.name: getattr(augmentation, each.name) for each in fields(Augmentation)}
    return ImageDataset(wanted.rows, embedder.preprocessing, _ViewsByKey(**options, keys=keys))


def _fill(
    writer: RecordWriter,
    source: _Source,
    dataset: ImageDataset,
    todo: Sequence[Key],
    keys: list[list[bytes]],
    workers: int,
    view: View,
) -> dict[int, str]:
    """Compute and write what is missing; return the reasons for unreadable images by row."""
    bad: dict[int, str] = {}
    batches = [todo[start : start + BATCH] for start in range(0, len(todo), BATCH)]
    loader = ImageLoader(dataset, workers)
    try:
        for some, batch in view.track("Activations")(_read(loader, batches), len(batches)):
            bad |= batch.bad
            good = [(v, r) for v, r in some if r not in batch.bad]
            if good:
                writer.append([keys[r][v] for v, r in good], source.compute(batch.images))
    finally:
        loader.close()
    return bad


def _read(loader: ImageLoader, batches: list[Sequence[Key]]) -> Iterator[tuple[Any, Any]]:
    return zip(batches, loader.pixels(batches), strict=True)


def _found(store: RecordStore, known: dict[bytes, int], keys: list[list[bytes]], bad: dict[int, str]) -> Activations:
    good = [row for row in range(len(keys)) if row not in bad]
    places = [[known[key] for key in keys[row]] for row in good]
    views = len(keys[0]) if keys else 1
    return Activations(store.values(), np.asarray(places, np.int64).reshape(-1, views), good, bad)


# What it takes, told before.


def _tell(
    embedder: Embedder,
    frozen: int,
    wanted: Sequence[Wanted],
    source: _Source,
    missing: int,
    store: RecordStore,
    view: View,
) -> None:
    size, free = missing * source.bytes_each, shutil.disk_usage(store.folder).free
    after = f"after the stage {embedder.backbone.stages()[frozen - 1].name}" if frozen else "(pixels)"
    view.note(
        f"Activations {after} are computed once: {missing:,} views, {readable_bytes(size)} in {store.folder} "
        f"({readable_bytes(free)} free)."
    )
    if size > free:
        raise TophitError(_too_large(embedder, frozen, wanted, source, free, f"{store.folder} has {{room}} free"))


def _too_large(
    embedder: Embedder, frozen: int, wanted: Sequence[Wanted], source: _Source, room: float, limit: str
) -> str:
    """Return how much is needed, and what would fit."""
    count = sum(each.records for each in wanted)
    needed = count * source.bytes_each
    fits: list[str] = []
    rows = sum(len(each.rows) for each in wanted if each.views)
    plain = sum(len(each.rows) for each in wanted if not each.views)
    views = int((room / source.bytes_each - plain) // rows) if rows else 0
    if views >= 1:
        fits.append(f"augment.views: {views}")
    shapes = stage_shapes(embedder)
    later = (n for n in range(frozen + 1, len(shapes)) if count * math.prod(shapes[n - 1]) * 2 <= room)
    if (cut := next(later, None)) is not None:
        fits.append(f"embedder.last: {len(shapes) - cut}")
    side = int(embedder.preprocessing.size * math.sqrt(room / needed)) // _SIDES * _SIDES
    if side >= _SIDES:
        fits.append(f"embedder.size: {side}")
    return (
        f"The activations for embedder.trainable: last need {readable_bytes(needed)} ({count:,} views of "
        f"{readable_bytes(source.bytes_each)}), and {limit.format(room=readable_bytes(room))}. What would fit: "
        f"{', or '.join(fits) or 'embedder.trainable: head'}; or allow more with data.activations_gb and a larger disk "
        "(TOPHIT_CACHE)."
    )
