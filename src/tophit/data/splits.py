"""Splitting and merging classes: splits that share no class, as zero-shot retrieval requires, and merged classes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from tophit.data.manifest import Manifest
from tophit.errors import UsageError


def split_classes(classes: Sequence[str], test_share: float, seed: int) -> dict[str, str]:
    """Map each class to "train" or "test"; ``test_share`` counts classes, and each side gets at least one."""
    if not 0 <= test_share <= 1:
        raise UsageError(f"The test share must be a fraction from 0 to 1, not {test_share}.")
    names = sorted(set(classes))
    tests = _how_many(len(names), test_share)
    order = np.random.default_rng(seed).permutation(len(names))
    return {names[i]: "test" if rank < tests else "train" for rank, i in enumerate(order)}


_MOST_TIMES = 3  # the two classes that choosing an epoch needs may be so many times the share that was asked for


def hold_out_validation(
    manifest: Manifest, share: float, seed: int, fold: int = 0, order: Literal["shuffled", "listed"] = "shuffled"
) -> Manifest:
    """Move a share of the training classes, at least two, to the split "validation".

    They are drawn at random, or, ``listed``, neighbours in the order in which the manifest names classes; as many folds
    again are then half a fold further along the list, which is a circle.

    A manifest that already has such a split, or would be left with fewer than two training classes, is unchanged. So
    is one with so few training classes that two of them would be far more than the share: of 4 classes, 10% is none.
    Each ``fold`` below ``validation_folds`` holds out other classes. Of images with several labels, images are held out
    instead of classes: they share labels, so no class stands apart.
    """
    folds = validation_folds(manifest, share)
    if folds == 0 or any(row.split == "validation" for row in manifest):
        return manifest
    most = 2 * folds if order == "listed" else folds
    if fold >= most:
        raise UsageError(f"data.validation_fold: {manifest.source} has only {most} (0 to {most - 1}), not {fold}.")
    units = _units(manifest)
    names = list(dict.fromkeys(units.values()))
    if order == "shuffled":
        names.sort()
        names = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    wanted = _held_out(len(names), share)
    first = fold * wanted if fold < folds else (fold - folds) * wanted + wanted // 2
    held_out = {names[place % len(names)] for place in range(first, first + wanted)}
    rows = (
        replace(row, split="validation") if units.get(number) in held_out else row
        for number, row in enumerate(manifest)
    )
    return replace(manifest, rows=tuple(rows), numbers=None)


def _units(manifest: Manifest) -> dict[int, str]:
    """Return by what the training rows, given by number, are held out: the class or, with several labels, the image."""
    return {
        number: f"{number:09}" if row.kind == "several" else row.label
        for number, row in enumerate(manifest)
        if row.split == "train"
    }


def validation_folds(manifest: Manifest, share: float) -> int:
    """Return how many sets of training classes, none in two of them, can be held out; 0 if there are too few classes.

    It is 1 where the manifest itself says which classes are for validation.
    """
    if any(row.split == "validation" for row in manifest):
        return 1
    classes = len(set(_units(manifest).values()))
    wanted = _held_out(classes, share)
    return 0 if classes - wanted < 2 or wanted > _MOST_TIMES * share * classes else classes // wanted


def _held_out(classes: int, share: float) -> int:
    return max(2, round(share * classes))


def merge_classes(manifest: Manifest, size: int) -> Manifest:
    """Return the rows with every ``size`` classes, in the order of their names, merged into one; 1 changes nothing.

    The last class may merge fewer. The new label names the old ones, joined by " + ".
    """
    if size <= 1:
        return manifest
    if manifest.kind != "one":
        raise UsageError("data.merge_classes: only classes with one label each can be merged; set it to 1.")
    names = sorted(set(manifest.labels))
    groups = [names[i : i + size] for i in range(0, len(names), size)]
    merged = {name: " + ".join(group) for group in groups for name in group}
    rows = (replace(row, label=merged[row.label]) for row in manifest)
    return replace(manifest, rows=tuple(rows))


def _how_many(classes: int, share: float) -> int:
    if share in (0, 1) or classes < 2:
        return round(classes * share)
    return min(classes - 1, max(1, round(classes * share)))
