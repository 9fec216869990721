"""Calibrating a model on images of classes that it has not learned, and keeping the calibration beside its weights."""

from collections.abc import Container, Sequence

import numpy as np

from tophit.calibrating import SEVERAL, StoredCalibration, drop_stale, read_calibration
from tophit.data.item_rows import item_id
from tophit.data.manifest import ImageRow, Manifest
from tophit.embedding.rows import embed_rows
from tophit.errors import TophitError, UsageError
from tophit.evaluation.calibration import UNKNOWN, TooFewClassesError, calibrate
from tophit.models.embedder import Embedder
from tophit.progress import View
from tophit.training.evaluate import search_arrays
from tophit.wording import counted


def calibrate_vectors(
    vectors: np.ndarray, rows: Sequence[ImageRow], fingerprint: str, unknown: float = UNKNOWN, seed: int = 0
) -> StoredCalibration:
    """Calibrate on vectors (N, d) of rows (N), none of which the model has learned, searched by the roles of the rows.

    The order of the rows does not matter, so that a run and ``tophit calibrate`` come to the same result. Raises
    ``TophitError`` where that can't be done, with the reason.
    """
    if rows and rows[0].kind == "several":
        raise TophitError(SEVERAL)
    if any(row.split == "train" for row in rows):
        raise UsageError("Chances are calibrated on classes that training did not see; leave the split train out.")
    if not 0 <= unknown < 1:
        raise UsageError(f"The share of unknown queries is from 0 to less than 1, not {unknown:g}.")
    order = sorted(range(len(rows)), key=lambda number: item_id(rows[number]))
    vectors, rows = vectors[order], [rows[number] for number in order]
    try:
        arguments = {
            name: value for name, value in search_arrays(vectors, rows).arguments.items() if name != "relevance"
        }
        made = calibrate(**arguments, unknown=unknown, seed=seed)
    except TooFewClassesError as error:
        raise TophitError(f"Chances are not calibrated: {error}.") from error
    return StoredCalibration(made, fingerprint, f"{_classes(made.classes, rows)} ({len(rows):,} images)")


def calibrate_model(
    embedder: Embedder, part: Manifest, unknown: float = UNKNOWN, seed: int = 0, view: View | None = None
) -> StoredCalibration:
    """Embed the rows of a manifest and calibrate on them; unreadable images are reported and left out."""
    if not part.rows:
        raise TophitError("Chances are not calibrated: there are no images of classes that the model has not learned.")
    view = view or View()
    embedded = embed_rows(embedder, part.rows, view.track("Embedding"))
    for row, reason in embedded.bad.items():
        view.note(f"Skipped row {part.number(row)}: {reason}")
    rows = [part.rows[number] for number in embedded.rows]
    if not rows:
        raise TophitError("None of the images could be read.")
    return calibrate_vectors(embedded.vectors, rows, embedder.fingerprint(), unknown, seed)


def unseen(manifest: Manifest, *seen: Container[str]) -> Manifest:
    """Return the rows of classes that training did not see: not of the split train, nor among ``seen`` labels."""
    if manifest.kind == "several":
        raise TophitError(SEVERAL)
    known = ({row.label for row in manifest if row.split == "train"}, *seen)
    kept = [number for number, row in enumerate(manifest) if not any(row.label in labels for labels in known)]
    numbers = tuple(manifest.number(number) for number in kept)
    return Manifest(tuple(manifest.rows[number] for number in kept), manifest.source, numbers)


def _classes(classes: int, rows: Sequence[ImageRow]) -> str:
    parts = [name for name in ("validation", "test") if any(row.split == name for row in rows)]
    split = "splits" if len(parts) > 1 else "split"
    return f"{counted(classes, 'class')} that training did not see, of the {split} {' and '.join(parts)}"


def calibrate_if_missing(
    embedder: Embedder, vectors: np.ndarray, rows: Sequence[ImageRow], view: View | None = None
) -> list[str]:
    """Calibrate an embedder of a folder that has no calibration, or one of other weights; say what was done."""
    if embedder.folder is None or read_calibration(embedder.folder, fingerprint := embedder.fingerprint()) is not None:
        return []
    view = view or View()
    if drop_stale(embedder.folder, fingerprint):
        view.note("The old calibration belonged to other weights and was dropped.")
    try:
        made = calibrate_vectors(vectors, rows, fingerprint)
        made.save(embedder.folder)
    except TophitError as error:
        view.note(str(error))
        return []
    except OSError as error:
        view.note(f"The calibration can't be kept in {embedder.folder}: {error.strerror}.")
        return []
    return made.sentences()
