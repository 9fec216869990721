"""Batch samplers: which images form a batch."""

from tophit.batches.balanced import BalancedBatchSampler
from tophit.batches.random import RandomBatchSampler
from tophit.batches.representatives import RepresentativeBatchSampler, projection_steps

__all__ = ["BalancedBatchSampler", "RandomBatchSampler", "RepresentativeBatchSampler", "projection_steps"]
