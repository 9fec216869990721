"""Feature files: vectors computed elsewhere, with their labels, as data to train a head on.

A ``.npz`` file with ``features`` (N, c) and ``labels`` (N,); optional ``split`` (N,) of train, validation or test, and
``names`` (N,). Without a split the first half of the sorted classes is for training, the second half for testing, as
CUB-200-2011 and Cars196 are split.
"""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from tophit.data.manifest import FEATURE_FILE, FEATURE_ROW, SPLITS, ImageRow, Manifest
from tophit.errors import TophitError

SUFFIX = ".npz"


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """The content of a feature file: float32 ``features`` (N, c), and a label, split and name for each."""

    features: np.ndarray
    labels: list[str]
    splits: list[str]
    names: list[str]

    @property
    def channels(self) -> int:
        """The length of a feature."""
        return self.features.shape[1]


def read_feature_file(path: str | Path) -> FeatureFile:
    """Read and check a feature file; it is kept in memory, so reading it again costs nothing."""
    path = Path(path).expanduser().absolute()
    if not path.is_file():
        raise TophitError(f"There is no feature file at {path}.")
    status = path.stat()
    return _read(path, status.st_mtime_ns, status.st_size)


def manifest_of_features(path: str | Path) -> Manifest:
    """Return a feature file as a manifest: one row per feature, whose path is the file's folder and its name."""
    path = Path(path).expanduser().absolute()
    return _manifest(path, read_feature_file(path))


def feature_file_of(rows: Sequence[ImageRow]) -> str | None:
    """Return the feature file that the rows come from, or None for rows of images."""
    return rows[0].metadata.get(FEATURE_FILE) if rows else None


def features_of_rows(rows: Sequence[ImageRow]) -> np.ndarray:
    """Return the features (N, c) of rows (N) that come from one feature file."""
    file = feature_file_of(rows)
    if file is None or any(row.metadata.get(FEATURE_FILE) != file for row in rows):
        raise TophitError("The rows mix feature files, or features and images; use one feature file, or images only.")
    return read_feature_file(file).features[[row.metadata[FEATURE_ROW] for row in rows]]


@lru_cache(maxsize=4)
def _manifest(path: Path, found: FeatureFile) -> Manifest:
    rows = (
        ImageRow(path.parent / name, label, split, metadata={FEATURE_FILE: str(path), FEATURE_ROW: number})
        for number, (name, label, split) in enumerate(zip(found.names, found.labels, found.splits, strict=True))
    )
    return Manifest(tuple(rows), str(path))


@lru_cache(maxsize=4)
def _read(path: Path, changed: int, size: int) -> FeatureFile:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            held = {name: arrays[name] for name in ("features", "labels", "split", "names") if name in arrays.files}
            others = sorted(set(arrays.files) - set(held))
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise TophitError(f"{path} is not a .npz file of arrays as written by numpy.savez: {error}.") from error
    missing = [name for name in ("features", "labels") if name not in held]
    if missing:
        has = ", ".join([*held, *others]) or "nothing"
        raise TophitError(f"{path}: no array {' and no array '.join(map(repr, missing))}; it has {has}.")
    features = held["features"]
    if features.ndim != 2 or not features.size or not np.issubdtype(features.dtype, np.floating):
        raise TophitError(
            f"{path}: 'features' must be floating point numbers (N, c), not {features.dtype} {features.shape}."
        )
    features = np.ascontiguousarray(features, np.float32)
    bad = ~np.isfinite(features).all(axis=1)
    if bad.any():
        raise TophitError(
            f"{path}: 'features' has {int(bad.sum())} rows with NaN or infinity, the first is {bad.argmax()}."
        )
    features.setflags(write=False)
    labels = _column(held["labels"], "labels", len(features), path)
    split = _splits(held["split"], len(features), path) if "split" in held else _halves(labels)
    names = _column(held["names"], "names", len(features), path) if "names" in held else np.arange(len(features))
    return FeatureFile(features, [str(x) for x in labels.tolist()], split, [str(name) for name in names.tolist()])


def _column(values: np.ndarray, name: str, length: int, path: Path) -> np.ndarray:
    if values.shape != (length,):
        raise TophitError(f"{path}: '{name}' must have one value per feature, shape {(length,)}, not {values.shape}.")
    if values.dtype.kind not in "iuSUb":
        raise TophitError(f"{path}: '{name}' must be whole numbers or text, not {values.dtype}.")
    return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values


def _splits(values: np.ndarray, length: int, path: Path) -> list[str]:
    found = [str(value) for value in _column(values, "split", length, path).tolist()]
    unknown = sorted(set(found) - set(SPLITS))
    if unknown:
        raise TophitError(f"{path}: 'split' holds '{unknown[0]}'; it must be one of {', '.join(SPLITS)}.")
    return found


def _halves(labels: np.ndarray) -> list[str]:
    """Return the standard split by class: the first half of the sorted classes, rounded down, is for training."""
    classes, numbers = np.unique(labels, return_inverse=True)
    return ["train" if number < len(classes) // 2 else "test" for number in numbers.tolist()]
