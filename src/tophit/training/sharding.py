"""Rows embedded by all processes together: each takes a block, all get the whole, the same as of one process."""

from collections.abc import Callable, Sequence

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.embedding.features import Features, cached_features
from tophit.embedding.rows import EmbeddedRows, embed_rows
from tophit.methods.stepper import Stepper
from tophit.models.embedder import Embedder
from tophit.progress import Progress

_BATCH = 64  # blocks are whole batches of the loader, so that every image is computed beside the same others


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
