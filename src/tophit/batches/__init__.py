"""Batch samplers: which images form a batch."""

from tophit.batches.balanced import BalancedBatchSampler
from tophit.batches.random import RandomBatchSampler

__all__ = ["BalancedBatchSampler", "RandomBatchSampler"]
