"""Make manifests of image sets that measurements use.

    python -m benchmarks.image_sets drawings ARCHIVE.npz FOLDER
    python -m benchmarks.image_sets views FOLDER_OF_CLASS_FOLDERS MANIFEST.csv
    python -m benchmarks.image_sets fewer FEATURES.npz FEWER.npz --per-class 8
    python -m benchmarks.image_sets fewer MANIFEST.csv FEWER.csv --classes 98

``drawings`` writes the images of an archive (arrays images, labels, class_names and split, such as Omniglot's or the
emoji's) as PNG files with a manifest. ``views`` lists class folders: the first half of the names is for training, the
second half for testing (the scanned products). ``fewer`` leaves out training images or training classes at random.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from tophit.data.feature_files import SUFFIX, read_feature_file
from tophit.data.manifest import ImageRow, Manifest, read_manifest, write_manifest


def drawings(archive: Path, folder: Path, classes: Iterable[int] | None = None) -> Path:
    """Write the images of an archive's classes, by default of all, and return their manifest."""
    manifest = folder / "manifest.csv"
    if manifest.is_file():
        return manifest
    with np.load(archive, allow_pickle=False) as arrays:
        images, labels, names, splits = (arrays[name] for name in ("images", "labels", "class_names", "split"))
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for label in range(len(names)) if classes is None else classes:
        for number, row in enumerate(np.flatnonzero(labels == label).tolist()):
            path = folder / f"{label:04}-{number:02}.png"
            Image.fromarray(images[row].squeeze()).save(path)
            rows.append(ImageRow(path, str(names[label]), str(splits[label])))
    write_manifest(Manifest(tuple(rows)), manifest)
    return manifest


def views(folder: Path, manifest: Path) -> Path:
    """Write the manifest of class folders: the first half of the names for training."""
    classes = sorted(each for each in folder.iterdir() if each.is_dir())
    rows = [
        ImageRow(path.resolve(), each.name, "train" if number < len(classes) // 2 else "test")
        for number, each in enumerate(classes)
        for path in sorted(each.iterdir())
    ]
    manifest.parent.mkdir(parents=True, exist_ok=True)
    write_manifest(Manifest(tuple(rows)), manifest)
    return manifest


def fewer(source: Path, out: Path, per_class: int | None, classes: int | None) -> Path:
    """Write a feature file or manifest with fewer training images of each class, or fewer training classes."""
    held = read_feature_file(source) if source.suffix == SUFFIX else read_manifest(source)
    of_rows = [row.split for row in held.rows] if isinstance(held, Manifest) else held.splits
    labels, splits = np.asarray(held.labels), np.asarray(of_rows)
    random = np.random.default_rng(0)
    learned = random.permutation(sorted(set(labels[splits == "train"].tolist())))[:classes].tolist()
    kept = np.flatnonzero(splits != "train").tolist()
    for name in sorted(learned):
        kept += random.permutation(np.flatnonzero((labels == name) & (splits == "train")))[:per_class].tolist()
    kept.sort()
    if isinstance(held, Manifest):
        write_manifest(Manifest(tuple(held.rows[row] for row in kept)), out)
    else:
        features, names = held.features[kept], np.asarray(held.names)[kept]
        np.savez(out, features=features, labels=labels[kept], split=splits[kept], names=names)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("drawings", "views", "fewer"))
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--per-class", type=int, help="for fewer: training images of each class; default: all")
    parser.add_argument("--classes", type=int, help="for fewer: training classes; default: all")
    arguments = parser.parse_args()
    if arguments.kind == "fewer":
        print(fewer(arguments.source, arguments.out, arguments.per_class, arguments.classes))
    else:
        print({"drawings": drawings, "views": views}[arguments.kind](arguments.source, arguments.out))


if __name__ == "__main__":
    main()
