"""The data of a trained model: which images it learned from, and what counts as a test of it.

On its own data a run is tested on the classes that it kept for that. Of other data nothing was learned, so they are
tested whole.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tophit.data.folders import open_data, whole_path
from tophit.data.item_rows import item_id
from tophit.data.levels import with_levels
from tophit.data.manifest import ImageRow, Manifest
from tophit.errors import TophitError
from tophit.recipe import Recipe
from tophit.training.run import data_of_run, recipe_of_run
from tophit.training.run_rows import data_of


def data_to_test(model: str, data: str | None) -> Manifest:
    """Return the data to test a model on; without ``data``, those of the run.

    A run's own data are split as in the run, so that no class it learned counts as a test class, also if they have
    moved. Other data are for testing, but for images that the run has learned.
    """
    recipe = recipe_of_run(model)
    if recipe is None or data is None or _is_own(recipe, data):
        return data_of_run(model, data)
    fields = recipe.data
    whole = open_data(data, test_share=1.0, set_name=fields.set, partial=True, boxes=fields.boxes, levels=fields.levels)
    return split_as_in_run(model, whole)


def split_as_in_run(model: str, manifest: Manifest, by_class: bool = False) -> Manifest:
    """Return rows with the split that a run gave them; rows that the run did not have stay as they are.

    With ``by_class`` those have the split of their class, so that new images of a learned class count as learned.
    """
    recipe = recipe_of_run(model)
    if recipe is None:
        return manifest
    try:
        own = data_of_run(model)
    except (TophitError, OSError):  # its data are gone, so nothing can be said
        return manifest
    splits = {item_id(row): row.split for row in own}
    classes = {row.label: row.split for row in sorted(own, key=lambda row: row.split == "train")} if by_class else {}
    found = (splits.get(item_id(row), classes.get(row.label, row.split)) for row in manifest)
    rows = (
        row if row.split == split else replace(row, split=split) for row, split in zip(manifest, found, strict=True)
    )
    return replace(manifest, rows=tuple(rows))


def levels_as_in_run(model: str, manifest: Manifest) -> Manifest:
    """Return rows whose labels are paths in a run's hierarchy, if they have its columns (``data.levels``)."""
    recipe = recipe_of_run(model)
    levels = () if recipe is None else recipe.data.levels
    if manifest.kind != "one" or not all(any(row.metadata.get(level) for row in manifest) for level in levels):
        return manifest
    return with_levels(manifest, levels)


def evaluation_folder(model: str, data: str | None, split: str) -> Path | None:
    """Return where the evaluation of a model on data is kept, so that none overwrites another.

    It is ``MODEL/evaluation`` for the test classes of a run's own data, and a folder of its own below that for each
    other split and other data. A model that is no folder, such as a backbone's name, has none.
    """
    if not Path(model).is_dir():
        return None
    parts = [] if split == "test" else [split]
    recipe = recipe_of_run(model)
    if data is not None and not (recipe is not None and _is_own(recipe, data)):
        name = re.sub(r"[^\w.-]+", "-", Path(data).name) or "data"
        parts.insert(0, f"{name}-{hashlib.sha256(whole_path(data).encode()).hexdigest()[:8]}")
    return Path(model, "evaluation", *parts)


def _is_own(recipe: Recipe, data: str) -> bool:
    """Return whether data are a run's own: the same path, the same files elsewhere, or the only ones there are."""
    if whole_path(data) == whole_path(recipe.data.manifest):
        return True
    try:
        own = data_of(recipe)
    except (TophitError, OSError):  # they have moved, or are gone
        return True
    try:
        other = data_of(recipe, data)
    except TophitError:
        return False
    return _names(own.rows) == _names(other.rows)


def _names(rows: Sequence[ImageRow]) -> list[tuple[str, str, str]]:
    return [(row.path.name, row.label, row.split) for row in rows]
