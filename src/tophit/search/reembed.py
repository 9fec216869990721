"""Changing over to a new model: build beside, compare on stored queries, switch, and the way back."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from tophit.data.manifest import ImageRow, item_id
from tophit.embedding.rows import embed_rows
from tophit.errors import TophitError
from tophit.images.decode import Box
from tophit.models.embedder import Embedder
from tophit.progress import Progress
from tophit.search.catalogue import Catalogue, open_catalogue
from tophit.search.engine import Hit, Item
from tophit.search.query import search_vectors
from tophit.search.versions import add_version, read_versions

_BATCH = 1024


@dataclass(frozen=True)
class Reembedded:
    """The new version's name, how many items it holds, and the reasons for images that are no longer readable."""

    version: str
    count: int
    bad: dict[str, str]


@dataclass(frozen=True)
class Comparison:
    """Two versions on the same queries. ``overlap`` is the mean share of the first k that both find.

    ``same_label`` is the mean share of the first k with the query's label, ``first_right`` the share of queries whose
    first result has it (old, new); NaN where queries have no labels.
    """

    queries: int
    k: int
    overlap: float
    same_label: tuple[float, float]
    first_right: tuple[float, float]


def reembed(folder: str | Path, embedder: Embedder, progress: Progress | None = None) -> Reembedded:
    """Embed every item of a catalogue anew by another embedder into a version beside it; nothing is switched.

    The images are read from the paths in the items' metadata. Typed again after an interruption it goes on: items that
    the new version holds already are not embedded again.
    """
    fingerprint = embedder.fingerprint()
    known = read_versions(folder)
    begun = [name for name, version in known.versions.items() if version.fingerprint == fingerprint]
    if begun and begun[-1] == known.current:
        raise TophitError(f"The index in {folder} is made by this embedder already.")
    name = begun[-1] if begun else add_version(folder, embedder)
    bad: dict[str, str] = {}
    with open_catalogue(folder) as old, open_catalogue(folder, writable=True, version=name) as new:
        batches = _batches(old)
        total = -(-len(old.index) // _BATCH)
        for batch in progress(batches, total) if progress else batches:
            bad |= _copy(batch, new)
        _delete_what_is_gone(old, new)
        return Reembedded(name, len(new.index), bad)


def compare_versions(
    folder: str | Path, new: str, queries: Sequence[ImageRow] | None = None, k: int = 10, sample: int = 200
) -> Comparison:
    """Compare a version with the one in force on queries: images with labels, or a sample of the items themselves.

    The sample is the same every time: the items at equal steps in the order of their ids. An item does not find itself.
    """
    with open_catalogue(folder) as first, open_catalogue(folder, version=new) as second:
        rows = list(queries) if queries is not None else _sample(first, sample)
        if not rows:
            raise TophitError(f"The index in {folder} has no items to compare versions with.")
        names = [item_id(row) for row in rows]
        found = [_answers(catalogue, rows, names, k) for catalogue in (first, second)]
    kept = [i for i in range(len(rows)) if i in found[0] and i in found[1]]
    if not kept:
        raise TophitError("None of the stored queries' images can be read.")
    old_hits, new_hits = ([answers[i] for i in kept] for answers in found)
    labels = [rows[i].label for i in kept]
    overlaps = [
        len({h.id for h in a} & {h.id for h in b}) / max(1, len(a), len(b))
        for a, b in zip(old_hits, new_hits, strict=True)
    ]
    return Comparison(
        queries=len(kept),
        k=k,
        overlap=float(np.mean(overlaps)),
        same_label=(_same_label(old_hits, labels), _same_label(new_hits, labels)),
        first_right=(_same_label(old_hits, labels, 1), _same_label(new_hits, labels, 1)),
    )


def _copy(batch: list[Item], new: Catalogue) -> dict[str, str]:
    """Embed the items of a batch that the new version lacks; what the old says beside the vector is taken over."""
    there = new.index.get([item.id for item in batch])
    missing = [item for item, found in zip(batch, there, strict=True) if found is None]
    changed = [
        (item, found)
        for item, found in zip(batch, there, strict=True)
        if found is not None and found.metadata != item.metadata
    ]
    if changed:
        new.index.upsert(
            [item.id for item, _ in changed],
            np.stack([found.vector for _, found in changed]),
            [item.metadata for item, _ in changed],
        )
    if not missing:
        return {}
    embedded = embed_rows(new.embedder, [row_of(item) for item in missing])
    chosen = [missing[i] for i in embedded.rows]
    new.index.upsert([item.id for item in chosen], embedded.vectors, [item.metadata for item in chosen])
    return {missing[i].id: reason for i, reason in embedded.bad.items()}


def _delete_what_is_gone(old: Catalogue, new: Catalogue) -> None:
    """Remove from the new version what was deleted from the old one since it was copied."""
    if len(new.index) <= len(old.index):
        return
    for batch in _batches(new):
        there = old.index.get([item.id for item in batch])
        new.index.delete([item.id for item, found in zip(batch, there, strict=True) if found is None])


def row_of(item: Item) -> ImageRow:
    """Return the image of an item, from its metadata."""
    path = item.metadata.get("path")
    if not path:
        raise TophitError(f"The item '{item.id}' has no path in its metadata, so its image can't be embedded anew.")
    box = item.metadata.get("box")
    if box is None and item.id.startswith(
        f"{path}#"
    ):  # loaded from tophit embed, which writes the box into the id only
        box = [float(part) for part in item.id.removeprefix(f"{path}#").split(",")]
    return ImageRow(Path(path), str(item.metadata.get("label", "")), box=None if box is None else _four(box))


def _four(box: Sequence[float]) -> Box:
    x1, y1, x2, y2 = box
    return x1, y1, x2, y2


def _batches(catalogue: Catalogue) -> Iterator[list[Item]]:
    items = catalogue.index.items(_BATCH)
    while batch := list(islice(items, _BATCH)):
        yield batch


def _sample(catalogue: Catalogue, count: int) -> list[ImageRow]:
    step = max(1, len(catalogue.index) // count)
    return [row_of(item) for item in islice(catalogue.index.items(_BATCH), 0, None, step)][:count]


def _answers(catalogue: Catalogue, rows: Sequence[ImageRow], names: Sequence[str], k: int) -> dict[int, list[Hit]]:
    embedded = embed_rows(catalogue.embedder, rows)
    if not embedded.rows:
        return {}
    leave_out = [[names[i]] for i in embedded.rows]
    hits = search_vectors(catalogue.index, embedded.vectors, k, leave_out=leave_out)
    return dict(zip(embedded.rows, hits, strict=True))


def _same_label(found: Sequence[Sequence[Hit]], labels: Sequence[str], first: int | None = None) -> float:
    shares = [
        np.mean([hit.metadata.get("label") == label for hit in hits[:first]])
        for hits, label in zip(found, labels, strict=True)
        if label and hits
    ]
    return float(np.mean(shares)) if shares else float("nan")
