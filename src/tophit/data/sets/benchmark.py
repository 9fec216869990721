"""Benchmark sets: what is known about each, and the one way to read them from an original archive."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tophit.data.manifest import ImageRow, Manifest
from tophit.data.sets.layout import find_folder
from tophit.errors import TophitError, UsageError
from tophit.registry import find, register

Reader = Callable[[Path, bool], list[ImageRow]]


@dataclass(frozen=True)
class Count:
    """How many classes and images a part has; if it is not ``strict``, a difference only gives a note."""

    part: str
    classes: int
    images: int
    strict: bool = True


@dataclass(frozen=True)
class BenchmarkSet:
    """A set: where it comes from, what to expect, and how it is read.

    ``read(root, boxes)`` returns all rows that the set's lists name, whether their files exist or not. ``marker`` is
    a file, relative to the set's folder, that identifies this folder: the one the user names or one directly below it.
    """

    name: str
    title: str
    marker: str
    archives: str
    licence: str
    counts: Sequence[Count]
    read: Reader = field(repr=False)
    boxes: bool = False  # whether the set has boxes


def benchmark_set(name: str, **facts: Any) -> Callable[[Reader], Reader]:
    """Register the decorated reader as a benchmark set; ``facts`` are the other fields of ``BenchmarkSet``."""

    def add(read: Reader) -> Reader:
        return register("set", name, benchmark=BenchmarkSet(name, read=read, **facts))(read)

    return add


def set_named(name: str) -> BenchmarkSet:
    """Return a set by its name."""
    found = find("set", name).told().get("benchmark")
    if found is None:
        raise UsageError(
            f"The set '{name}' is not registered: decorate its reader with tophit.data.sets.benchmark_set."
        )
    return found


_OWN_IMAGES = (
    " To train by this recipe on your own images: --set data.set=null with a folder of class folders, or a manifest "
    "(.csv, .parquet)."
)


def set_of_folder(folder: str | Path, names: Sequence[str]) -> str | None:
    """Return the set of these names whose files are in a folder, or directly below it; None if there is no such."""
    for name in names:
        chosen = set_named(name)
        try:
            find_folder(folder, chosen.marker, chosen.title, chosen.archives)
        except TophitError:
            continue
        return name
    return None


def read_set(
    name: str, root: str | Path, partial: bool = False, boxes: bool = False, own_images: bool = False
) -> Manifest:
    """Return the manifest of a benchmark set, unpacked in or directly below ``root``, with its standard split.

    Missing images, and counts other than those published, are errors; with ``partial`` the images that exist are
    used. ``boxes`` crops every image to its object, where the set has boxes. ``own_images`` says in an error that a
    recipe for the set takes other images too.
    """
    chosen = set_named(name)
    if boxes and not chosen.boxes:
        raise UsageError(f"{chosen.title} has no boxes; leave out --boxes (data.boxes in a recipe).")
    try:
        folder = find_folder(root, chosen.marker, chosen.title, chosen.archives)
    except TophitError as error:
        raise type(error)(f"{error}{_OWN_IMAGES if own_images else ''}") from None
    rows = chosen.read(folder, boxes)
    there = [row for row in rows if os.path.isfile(row.path)]
    if len(there) < len(rows) and not (partial and there):
        raise _missing_images(chosen, rows, there, partial)
    differences = count_differences(chosen.counts, rows, strict=True)
    if differences and not partial:
        raise TophitError(
            f"{chosen.title} in {folder} is not complete. {'. '.join(differences)}. "
            "To continue with the images that are there: --partial, or data.partial=true in a recipe."
        )
    return Manifest(tuple(there), str(folder))


def has_published_counts(name: str, rows: Sequence[ImageRow]) -> bool:
    """Return whether rows, such as those of a manifest, have the published counts of a set in all of its parts."""
    counts = set_named(name).counts
    return not any(count_differences(counts, rows, strict) for strict in (True, False))


def _missing_images(chosen: BenchmarkSet, rows: list[ImageRow], there: list[ImageRow], partial: bool) -> TophitError:
    first = next(row.path for row in rows if not os.path.isfile(row.path))
    hint = "" if partial else " To continue without them: --partial, or data.partial=true in a recipe."
    return TophitError(
        f"{chosen.title}: {len(rows) - len(there):,} of {len(rows):,} images are missing, the first is {first}. "
        f"They are in {chosen.archives}.{hint}"
    )


def rows_of_part(rows: Sequence[ImageRow], part: str) -> list[ImageRow]:
    """Return the rows of a split, of a role, or of a named test set."""
    if part in ("train", "test"):
        return [row for row in rows if row.split == part]
    if part in ("query", "gallery"):
        return [row for row in rows if row.split == "test" and row.role == part]
    return [row for row in rows if part in str(row.metadata.get("test_sets", "")).split()]


def count_parts(wanted: Sequence[Count], rows: Sequence[ImageRow]) -> list[Count]:
    """Return the same parts with the classes and images counted in the rows."""
    found = []
    for count in wanted:
        part = rows_of_part(rows, count.part)
        found.append(Count(count.part, len({row.label for row in part}), len(part), count.strict))
    return found


def count_differences(wanted: Sequence[Count], rows: Sequence[ImageRow], strict: bool) -> list[str]:
    """Return a phrase for every part whose counts differ from the published ones, of the strict parts or the others."""
    return [
        f"{found.part}: {found.classes:,} classes, {found.images:,} images; "
        f"published: {count.classes:,} classes, {count.images:,} images"
        for count, found in zip(wanted, count_parts(wanted, rows), strict=True)
        if count.strict == strict and (count.classes, count.images) != (found.classes, found.images)
    ]
