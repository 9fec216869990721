"""The rows that a run learns from and is measured on: split, merged and checked."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tophit.data.folders import open_data
from tophit.data.manifest import SPLITS, ImageRow, Manifest
from tophit.data.splits import hold_out_validation, merge_classes, validation_folds
from tophit.errors import TophitError
from tophit.recipe import Recipe
from tophit.wording import counted

_FOR = {"train": "training", "validation": "choosing the best epoch", "test": "testing"}


@dataclass(frozen=True)
class RunRows:
    """The whole manifest of a run and its three parts; ``train`` has merged classes if the recipe says so.

    ``folds`` is how many different sets of validation classes there are to choose from.
    """

    whole: Manifest
    train: Manifest
    validation: Manifest
    test: Manifest
    folds: int = 1

    @cached_property
    def digest(self) -> str:
        """A digest of what a run learns from: the order of the rows, their labels, splits and boxes."""
        rows = [(row.path.name, row.label, row.split, row.box) for row in self.whole]
        return hashlib.sha256(repr(rows).encode()).hexdigest()


def digest_of_rows(rows: Iterable[ImageRow]) -> str:
    """Return a digest of what is measured: images, labels, roles and boxes, in any order and any folder."""
    facts = sorted(repr((row.path.name, str(row.label), row.role, row.box)) for row in rows)
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def rows_of(recipe: Recipe) -> RunRows:
    """Open a recipe's data and split it; raise if there is too little to learn from."""
    manifest, fields = data_of(recipe), recipe.data
    folds = validation_folds(manifest, fields.validation_share)
    manifest = with_validation(manifest, recipe)
    train = merge_classes(_training_rows(manifest), fields.merge_classes)
    return RunRows(manifest, train, manifest.where("validation"), manifest.where("test"), folds)


def with_validation(manifest: Manifest, recipe: Recipe) -> Manifest:
    """Return a recipe's rows with its validation classes held out."""
    fields = recipe.data
    return hold_out_validation(
        manifest, fields.validation_share, recipe.seed, fields.validation_fold, fields.validation_order
    )


def data_of(recipe: Recipe, data: str | None = None) -> Manifest:
    """Open a recipe's data, or other data in the same way."""
    fields = recipe.data
    name = fields.manifest if data is None else data
    return open_data(
        name, fields.test_share, fields.split_seed, fields.set, fields.partial, fields.boxes, fields.levels
    )


def has_pairs(manifest: Manifest) -> bool:
    """Return whether there is anything to find: a class with two images, or a label that two images have."""
    every = [name for row in manifest for name in row.classes]
    return len(every) > len(set(every))


def _training_rows(manifest: Manifest) -> Manifest:
    train = manifest.where("train")
    if len(set(train.labels)) < 2:
        parts = ((name, len(set(manifest.where(name).labels))) for name in SPLITS)
        divided = ", ".join(f"{count} for {_FOR[name]}" for name, count in parts if count)
        total = len(set(manifest.labels))
        raise TophitError(
            f"{manifest.source} has {counted(total, 'class')}: {divided}. Training needs at least two "
            "classes. Add class folders, or keep fewer classes for testing with --set data.test_share=0.25 (0: none); "
            "in a table, the column split says which rows are for training (rows without one are for testing)."
        )
    return train
