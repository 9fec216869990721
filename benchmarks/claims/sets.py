"""The four data sets of the claims, from files whose places are given: features of photos, of icons, and drawings."""

from pathlib import Path

import numpy as np

from benchmarks.image_sets import drawings
from tophit.data.feature_files import read_feature_file
from tophit.data.folders import open_data
from tophit.embedding.features import cached_features
from tophit.files import replace_file
from tophit.models.embedder import build_embedder

ICON_SIDE = 64
COMPONENTS = 256
TRAIN_EVERY, TEST_EVERY = 6, 10  # characters: a small net on all of them would take minutes


def icon_features(path: Path) -> Path:
    """Write the demo set as a feature file: EfficientNet-Lite0 at 64 pixels; return the file."""
    if not path.is_file():
        manifest = open_data("icons")
        features = cached_features(build_embedder(size=ICON_SIDE, crop=1.0), manifest.rows)
        rows = [manifest.rows[i] for i in features.rows]
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            np.savez(
                temporary,
                features=features.values.astype(np.float16),
                labels=np.asarray([row.label for row in rows]),
                split=np.asarray([row.split for row in rows]),
                names=np.asarray([row.path.name for row in rows]),
            )
    return path


def reduced(file: Path, path: Path) -> Path:
    """Write a feature file's 256 principal components, of the training classes, centred; return the new file.

    A head on them costs less than one on all 1280 numbers.
    """
    if not path.is_file():
        held = read_feature_file(file)
        learns = np.asarray(held.splits) == "train"
        centred = held.features - held.features[learns].mean(axis=0)
        _, directions = np.linalg.eigh(centred[learns].T @ centred[learns])
        components = centred @ directions[:, : -COMPONENTS - 1 : -1]
        components /= np.linalg.norm(components[learns], axis=1).mean()
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            np.savez(
                temporary,
                features=components,
                labels=np.asarray(held.labels),
                split=np.asarray(held.splits),
                names=np.asarray(held.names),
            )
    return path


def characters(archive: Path, folder: Path) -> Path:
    """Write every sixth training and tenth test character of Omniglot as images; return their manifest."""
    with np.load(archive, allow_pickle=False) as arrays:
        splits = arrays["split"]
    learned, tested = (np.flatnonzero(splits == split) for split in ("train", "test"))
    return drawings(archive, folder, [*learned[::TRAIN_EVERY].tolist(), *tested[::TEST_EVERY].tolist()])
