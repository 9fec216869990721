"""Changing to a new model: build a version beside the old one, compare the two, switch, and go back if needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from tophit.data.feature_files import feature_file_of
from tophit.data.item_rows import item_id, to_row
from tophit.data.manifest import ImageRow
from tophit.embedding.rows import EmbeddedRows, embed_rows
from tophit.errors import TophitError
from tophit.models.embedder import Embedder
from tophit.progress import Progress
from tophit.search.backend import Hit, Item
from tophit.search.calibrate_items import calibrate_index
from tophit.search.catalogue import Catalogue, open_catalogue
from tophit.search.query import search_vectors
from tophit.search.versions import add_version, read_versions

_BATCH = 1024


@dataclass(frozen=True)
class Reembedded:
    """The new version's name, how many items it holds, and why images could no longer be read, by id."""

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
    """Embed every item of a catalogue again, by another embedder, into a version beside it; nothing is switched.

    The images are read from the paths in the items' metadata, features from their feature files. Called again after an
    interruption it continues: items that the new version already holds are not embedded again.
    """
    fingerprint = embedder.fingerprint()
    known = read_versions(folder)
    started = [name for name, version in known.versions.items() if version.fingerprint == fingerprint]
    if started and started[-1] == known.current:
        raise TophitError(f"The index in {folder} was already made by this embedder.")
    name = started[-1] if started else add_version(folder, embedder)
    bad: dict[str, str] = {}
    with open_catalogue(folder) as old, open_catalogue(folder, writable=True, version=name) as new:
        batches = old.index.backend.items(_BATCH)
        total = -(-len(old.index) // _BATCH)
        for batch in progress(batches, total) if progress else batches:
            bad |= _copy(batch, new)
        _delete_removed(old, new)
        calibrate_index(folder, new.index, name)
        return Reembedded(name, len(new.index), bad)


def compare_versions(
    folder: str | Path, new: str, queries: Sequence[ImageRow] | None = None, k: int = 10, sample: int = 200
) -> Comparison:
    """Compare a version with the active one on queries: images with labels, or a sample of the items themselves.

    The sample is the same every time: items at equal steps in the order of their ids. An item does not find itself.
    """
    with open_catalogue(folder) as first, open_catalogue(folder, version=new) as second:
        asked = _sample(first, sample) if queries is None else [(item_id(row), row) for row in queries]
        if not asked:
            raise TophitError(f"The index in {folder} has no items to compare versions with.")
        found = [_answers(catalogue, asked, k) for catalogue in (first, second)]
    kept = [i for i in range(len(asked)) if i in found[0] and i in found[1]]
    if not kept:
        raise TophitError("None of the queries' images can be read.")
    old_hits, new_hits = ([answers[i] for i in kept] for answers in found)
    labels = [asked[i][1].label for i in kept]
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
    """Embed the items of a batch that the new version lacks; their metadata is taken over from the old version."""
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
    embedded = _embed(new.embedder, [to_row(item.id, item.metadata) for item in missing])
    chosen = [missing[i] for i in embedded.rows]
    new.index.upsert([item.id for item in chosen], embedded.vectors, [item.metadata for item in chosen])
    return {missing[i].id: reason for i, reason in embedded.bad.items()}


def _embed(embedder: Embedder, rows: Sequence[ImageRow]) -> EmbeddedRows:
    """Embed rows of images and of any number of feature files."""
    numbers: dict[str | None, list[int]] = {}
    for number, row in enumerate(rows):
        numbers.setdefault(feature_file_of([row]), []).append(number)
    vectors: list[np.ndarray] = [np.empty((0, embedder.dim), np.float32)]
    good: list[int] = []
    bad: dict[int, str] = {}
    for some in numbers.values():
        embedded = embed_rows(embedder, [rows[i] for i in some])
        vectors.append(embedded.vectors)
        good += [some[i] for i in embedded.rows]
        bad |= {some[i]: reason for i, reason in embedded.bad.items()}
    return EmbeddedRows(np.concatenate(vectors), good, bad)


def _delete_removed(old: Catalogue, new: Catalogue) -> None:
    """Remove from the new version what was deleted from the old one after it was copied."""
    if len(new.index) <= len(old.index):
        return
    for batch in new.index.backend.items(_BATCH):
        there = old.index.get([item.id for item in batch])
        new.index.delete([item.id for item, found in zip(batch, there, strict=True) if found is None])


def _sample(catalogue: Catalogue, count: int) -> list[tuple[str, ImageRow]]:
    step = max(1, len(catalogue.index) // count)
    chosen = islice(catalogue.index.items(_BATCH), 0, None, step)
    return [(item.id, to_row(item.id, item.metadata)) for item in islice(chosen, count)]


def _answers(catalogue: Catalogue, asked: Sequence[tuple[str, ImageRow]], k: int) -> dict[int, list[Hit]]:
    embedded = _embed(catalogue.embedder, [row for _, row in asked])
    if not embedded.rows:
        return {}
    leave_out = [[asked[i][0]] for i in embedded.rows]
    hits = search_vectors(catalogue.index, embedded.vectors, k, leave_out=leave_out)
    return dict(zip(embedded.rows, hits, strict=True))


def _same_label(found: Sequence[Sequence[Hit]], labels: Sequence[str], first: int | None = None) -> float:
    shares = [
        np.mean([hit.metadata.get("label") == label for hit in hits[:first]])
        for hits, label in zip(found, labels, strict=True)
        if label and hits
    ]
    return float(np.mean(shares)) if shares else float("nan")
