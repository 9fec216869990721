"""Calibrating an index: on its own labelled items where they suffice, else as its model was calibrated."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from tophit.calibrating import SEVERAL, StoredCalibration, drop_stale, read_calibration
from tophit.data.item_rows import LABEL_KIND
from tophit.evaluation.calibration import UNKNOWN, TooFewClassesError, calibrate
from tophit.models.learned import LearnedClasses
from tophit.search.index import Index
from tophit.search.versions import read_versions
from tophit.wording import counted

MOST_ITEMS = 100_000
"""Items that are read; of a larger index, whole classes are drawn."""


def index_calibration(folder: str | Path, fingerprint: str, version: str | None = None) -> StoredCalibration | None:
    """Return the calibration of an index: its own, else its model's; None if both are missing or of another model."""
    own = Path(folder) / (version or read_versions(folder).current or "")
    return read_calibration(own, fingerprint) or read_calibration(own / "embedder", fingerprint)


def calibrate_index(
    folder: str | Path, index: Index, version: str | None = None, *, unknown: float = UNKNOWN, seed: int = 0
) -> tuple[StoredCalibration | None, list[str]]:
    """Calibrate the version of an index, and write it beside it; return it with sentences about what was done.

    The queries are items with labels whose classes the model has not learned; each searches all other items. With too
    few such classes the model's own calibration is taken, with the size of classes in this index.
    """
    own = Path(folder) / (version or read_versions(folder).current or "")
    stale = drop_stale(own, index.fingerprint)
    said = ["The old calibration belonged to another model and was dropped."] if stale else []
    vectors, labels, learned, whole = _labelled_items(index, seed)
    seen = LearnedClasses.read(own / "embedder")
    if not labels and any(item.metadata.get(LABEL_KIND) for item in islice(index.items(), 1)):
        return None, [*said, SEVERAL]
    asking = _asking(labels, [trained or label in seen for label, trained in zip(labels, learned, strict=True)])
    sizes = len(labels) / max(1, len(set(labels)))
    try:
        if not len(asking):
            raise TooFewClassesError(0)
        made = calibrate(
            vectors[asking],
            [labels[row] for row in asking],
            vectors,
            labels,
            asking,
            unknown=unknown,
            seed=seed,
        )
        where = "this index" if whole else f"a part of this index ({len(labels):,} items)"
        from_words = f"{counted(made.classes, 'class')} of {where} that the model has not learned"
        stored = StoredCalibration(made, index.fingerprint, from_words, sizes)
    except TooFewClassesError as error:
        models = read_calibration(own / "embedder", index.fingerprint)
        if models is None:
            return None, [*said, f"Chances are not calibrated: {error}."]
        stored = replace(models, per_class=sizes if labels else None)
    stored.save(own)
    return stored, [*said, *stored.sentences(labelled=bool(labels))]


def learned_labels(index: Index) -> set[str]:
    """Return the labels of items that the model was trained on."""
    return {str(item.metadata.get("label")) for item in index.items() if item.metadata.get("split") == "train"}


def _asking(labels: list[str], learned: list[bool]) -> np.ndarray:
    """Return the rows whose class the model has not learned."""
    seen = {label for label, known in zip(labels, learned, strict=True) if known}
    return np.array([row for row, label in enumerate(labels) if label not in seen], int)


def _labelled_items(index: Index, seed: int) -> tuple[np.ndarray, list[str], list[bool], bool]:
    """Return vectors, labels, and whether the model learned them, of items with a label, and whether these are all."""
    whole = len(index) <= MOST_ITEMS
    kept: set[str] | None = None if whole else _drawn_classes(index, seed)
    vectors, labels, learned = [np.empty((0, index.dim), np.float32)], [], []
    for item in index.items():
        label = item.metadata.get("label")
        if label is None or label == "" or (kept is not None and str(label) not in kept):
            continue
        if LABEL_KIND in item.metadata:  # several labels
            continue
        vectors.append(item.vector[None])
        labels.append(str(label))
        learned.append(item.metadata.get("split") == "train")
    return np.concatenate(vectors), labels, learned, whole


def _drawn_classes(index: Index, seed: int) -> set[str]:
    """Return classes, drawn at random, that have about ``MOST_ITEMS`` items in all."""
    sizes: dict[str, int] = {}
    for item in index.items():
        label = str(item.metadata.get("label") or "")
        if label:
            sizes[label] = sizes.get(label, 0) + 1
    names, total, drawn = sorted(sizes), 0, set[str]()
    for number in np.random.default_rng(seed).permutation(len(names)):
        total += sizes[names[number]]
        if total > MOST_ITEMS and drawn:
            break
        drawn.add(names[number])
    return drawn


def calibrate_by(folder: str | Path, index: Index, made: StoredCalibration) -> StoredCalibration:
    """Keep a calibration of the index's model, learned elsewhere, with the size of classes in this index."""
    _, labels, _, _ = _labelled_items(index, 0)
    stored = replace(made, per_class=len(labels) / len(set(labels)) if labels else None)
    stored.save(Path(folder) / (read_versions(folder).current or ""))
    return stored
