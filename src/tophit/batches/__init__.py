"""Batch samplers: which images form a batch."""

from collections.abc import Iterator
from typing import Protocol

from tophit.batches.balanced import BalancedBatchSampler, RandomBatchSampler
from tophit.batches.confused import ConfusedBatchSampler
from tophit.batches.representatives import RepresentativeBatchSampler, projection_steps
from tophit.batches.several_labels import LabelBatchSampler
from tophit.batches.siblings import SiblingBatchSampler

__all__ = [
    "BalancedBatchSampler",
    "BatchSampler",
    "ConfusedBatchSampler",
    "LabelBatchSampler",
    "RandomBatchSampler",
    "RepresentativeBatchSampler",
    "SiblingBatchSampler",
    "projection_steps",
]


class BatchSampler(Protocol):
    """Gives an epoch's batches as lists of row numbers; ``epoch`` is set before each epoch.

    A sampler with the attribute ``is_stream`` (True) continues from where it was and draws each batch on demand. One
    with the attribute ``coverage`` says in a sentence what an epoch shows.
    """

    epoch: int

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        ...

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of the epoch."""
        ...
