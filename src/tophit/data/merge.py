"""Merged classes: the robustness experiment of the PNP paper, in which a class has several centres."""

from tophit.data.manifest import ImageRow, Manifest


def merge_classes(manifest: Manifest, size: int) -> Manifest:
    """Return the rows with every ``size`` classes, in the order of their names, merged into one; 1 changes nothing.

    The last class may merge fewer. The new label names the old ones, joined by " + ".
    """
    if size <= 1:
        return manifest
    names = sorted(set(manifest.labels))
    groups = [names[i : i + size] for i in range(0, len(names), size)]
    merged = {name: " + ".join(group) for group in groups for name in group}
    rows = (ImageRow(row.path, merged[row.label], row.split, row.role, row.box, row.metadata) for row in manifest)
    return Manifest(tuple(rows), manifest.source, manifest.numbers)
