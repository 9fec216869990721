"""Merged training classes."""

from pathlib import Path

from tophit.data.manifest import ImageRow, Manifest
from tophit.data.splits import merge_classes


def manifest(labels):
    return Manifest(tuple(ImageRow(Path(f"{i}.png"), label, "train") for i, label in enumerate(labels)), "made up")


def test_every_three_classes_become_one_in_the_order_of_their_names():
    merged = merge_classes(manifest(["d", "a", "b", "c", "a", "e"]), 3)
    assert list(merged.labels) == ["d + e", "a + b + c", "a + b + c", "a + b + c", "a + b + c", "d + e"]
    assert [row.path for row in merged] == [Path(f"{i}.png") for i in range(6)]


def test_one_changes_nothing():
    rows = manifest(["b", "a"])
    assert merge_classes(rows, 1) is rows
