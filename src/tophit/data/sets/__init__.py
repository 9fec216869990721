"""Benchmark sets: from the files of an original archive to a manifest with the standard split."""

from tophit.data.sets.benchmark import (
    BenchmarkSet,
    Count,
    benchmark_set,
    has_published_counts,
    read_set,
    set_named,
    set_of_folder,
)

__all__ = ["BenchmarkSet", "Count", "benchmark_set", "has_published_counts", "read_set", "set_named", "set_of_folder"]
