"""A hierarchy from columns of a manifest: the columns above the label, from the coarsest, and the label as its leaf."""

from collections.abc import Sequence
from dataclasses import replace

from tophit.data.label_kinds import SEPARATORS, label_text
from tophit.data.manifest import ImageRow, Manifest
from tophit.errors import UsageError


def with_levels(manifest: Manifest, levels: Sequence[str]) -> Manifest:
    """Return rows whose labels are paths: the values of these metadata columns, then the label; none changes nothing.

    A leaf belongs to one branch: the same label under two parents is two leaves. A label without a value at a level
    stands alone there: no other label is near it. A ``/`` in a name becomes ``-``, because it separates levels.
    """
    if not levels:
        return manifest
    if manifest.kind != "one":
        raise UsageError(
            f"data.levels: the labels of {manifest.source} are already {_ALREADY[manifest.kind]}; leave levels out."
        )
    for level in levels:
        if not any(row.metadata.get(level) for row in manifest):
            has = (
                ", ".join(dict.fromkeys(name for row in manifest for name in row.metadata)) or "none besides the label"
            )
            raise UsageError(f"data.levels: {manifest.source} has no column '{level}'; its columns: {has}.")
    return replace(manifest, rows=tuple(_with_path(row, levels) for row in manifest))


_ALREADY = {"several": "several for each image (the column labels)", "path": "paths (the column label_path)"}


def _with_path(row: ImageRow, levels: Sequence[str]) -> ImageRow:
    above = [str(row.metadata.get(level) or f"no {level}: {row.label}") for level in levels]
    names = tuple(name.replace(SEPARATORS["path"], "-") for name in (*above, row.label))
    return replace(row, label=label_text(names, "path"), kind="path", names=names)
