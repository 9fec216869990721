"""Benchmark sets: from the files of an original archive to a manifest with the standard split."""

from tophit.data.sets.registry import SETS, read_set, set_named

__all__ = ["SETS", "read_set", "set_named"]
