"""A hierarchy from columns of a manifest: the columns above the label, from the coarsest, and the label as its leaf."""

from collections.abc import Sequence
from dataclasses import replace

from tophit.data.label_kinds import label_text
from tophit.data.manifest import ImageRow, Manifest
from tophit.errors import UsageError


def with_levels(manifest: Manifest, levels: Sequence[str]) -> Manifest:
    """Return rows whose labels are paths: the values of these metadata columns, then the label; none changes nothing.

    A leaf belongs to one branch: the same label under two parents is two leaves.
    """
    if not levels:
        return manifest
    if manifest.kind != "one":
        raise UsageError(
            f"data.levels: the labels of {manifest.source} are already {_ALREADY[manifest.kind]}; leave levels out."
        )
    return replace(manifest, rows=tuple(_row(manifest, number, levels) for number in range(len(manifest))))


_ALREADY = {"several": "several for each image (the column labels)", "path": "paths (the column label_path)"}


def _row(manifest: Manifest, number: int, levels: Sequence[str]) -> ImageRow:
    row = manifest.rows[number]
    values = [str(row.metadata.get(level) or "") for level in levels]
    if "" in values:
        column = levels[values.index("")]
        has = ", ".join(row.metadata) or "none besides the label"
        raise UsageError(
            f"data.levels: {manifest.source}, row {manifest.number(number)} has no value in the column '{column}'; "
            f"its columns: {has}."
        )
    names = (*values, row.label)
    return replace(row, label=label_text(names, "path"), kind="path", names=names)
