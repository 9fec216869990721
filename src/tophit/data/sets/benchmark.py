"""What is known of a benchmark set: its name, archives, licence, the counts its papers publish, and its reader."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tophit.data.manifest import ImageRow


@dataclass(frozen=True)
class Count:
    """How many classes and images a part has; a part that is not ``strict`` may differ, with a note."""

    part: str
    classes: int
    images: int
    strict: bool = True


@dataclass(frozen=True)
class BenchmarkSet:
    """A set: where it comes from, what to expect, and how it is read.

    ``read(root, boxes)`` returns all rows that the set's lists name, whether their files exist or not. ``marker`` is
    a file, relative to the set's folder, by which that folder is found in or one level below the user's.
    """

    name: str
    title: str
    marker: str
    archives: str
    licence: str
    counts: Sequence[Count]
    read: Callable[[Path, bool], list[ImageRow]] = field(repr=False)
    boxes: bool = False  # whether the set has boxes


def rows_of_part(rows: Sequence[ImageRow], part: str) -> list[ImageRow]:
    """Return the rows of a split, of a role, or of a named test set."""
    if part in ("train", "test"):
        return [row for row in rows if row.split == part]
    if part in ("query", "gallery"):
        return [row for row in rows if row.split == "test" and row.role == part]
    return [row for row in rows if part in str(row.metadata.get("test_sets", "")).split()]


def count_parts(wanted: Sequence[Count], rows: Sequence[ImageRow]) -> list[Count]:
    """Return the same parts with what the rows have of them."""
    found = []
    for count in wanted:
        part = rows_of_part(rows, count.part)
        found.append(Count(count.part, len({row.label for row in part}), len(part), count.strict))
    return found


def count_differences(wanted: Sequence[Count], rows: Sequence[ImageRow], strict: bool) -> list[str]:
    """Return a phrase for every strict (or every other) part that differs from what is published."""
    return [
        f"{found.part}: {found.classes:,} classes, {found.images:,} images; "
        f"published: {count.classes:,} classes, {count.images:,} images"
        for count, found in zip(wanted, count_parts(wanted, rows), strict=True)
        if count.strict == strict and (count.classes, count.images) != (found.classes, found.images)
    ]
