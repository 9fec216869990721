"""Cars196 (Stanford Cars). Classes 1 to 98 are for training, 99 to 196 for testing; the devkit's split is ignored.

A class is named like ``Audi S4 Sedan 2012``: ``maker`` is its first word or two.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.data.sets.benchmark import Count, benchmark_set
from tophit.data.sets.layout import first_existing
from tophit.errors import TophitError
from tophit.images.decode import Box

_LAST_TRAINING_CLASS = 98
_OLD, _DEVKIT = "cars_annos.mat", "devkit/cars_train_annos.mat"
_TEST = "cars_test_annos_withlabels.mat"
_MAKERS_OF_TWO_WORDS = ("AM General", "Aston Martin", "Land Rover")


@benchmark_set(
    "cars196",
    title="Cars196",
    marker=f"{_OLD}|{_DEVKIT}|cars_train_annos.mat",
    archives="car_ims.tgz with cars_annos.mat, or car_devkit.tgz, cars_train.tgz, cars_test.tgz and " + _TEST,
    licence="non-commercial research",
    counts=(Count("train", 98, 8_054), Count("test", 98, 8_131)),
    boxes=True,
)
def cars196(root: Path, boxes: bool) -> list[ImageRow]:
    """Read the single annotation file if it is there (images in car_ims/), else the devkit's two."""
    if (root / _OLD).is_file():
        content = _load(root / _OLD)
        names = _class_names(content)
        return [_row(root / str(each.relative_im_path), each, names, boxes) for each in _annotations(content, _OLD)]
    train = first_existing(root, _DEVKIT, "cars_train_annos.mat", archive="car_devkit.tgz")
    test = first_existing(root, _TEST, f"devkit/{_TEST}", archive=f"no archive: download {_TEST} on its own")
    meta = first_existing(root, "devkit/cars_meta.mat", "cars_meta.mat", archive="car_devkit.tgz")
    names = _class_names(_load(meta))
    rows = []
    for path, folder in ((train, "cars_train"), (test, "cars_test")):
        # Some copies of the archives nest the folder inside another of the same name.
        images = first_existing(root, f"{folder}/{folder}", folder, archive=f"{folder}.tgz")
        for each in _annotations(_load(path), path.name):
            rows.append(_row(images / str(each.fname), each, names, boxes))
    return rows


def _load(path: Path) -> dict[str, Any]:
    try:
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError
    except ImportError:
        raise TophitError(f"{path} is a MATLAB file; reading it needs scipy: pip install 'tophit[sets]'.") from None
    try:
        return loadmat(path, squeeze_me=True, struct_as_record=False)
    except (MatReadError, ValueError, TypeError, OSError, NotImplementedError) as error:
        raise TophitError(f"{path} can't be read as a MATLAB file: {error}.") from error


def _annotations(content: dict[str, Any], name: str) -> list[Any]:
    found = list(np.atleast_1d(content["annotations"])) if "annotations" in content else []
    missing = [each for each in ("class", "bbox_x1") if not found or not hasattr(found[0], each)]
    if missing:
        hint = f" The devkit's own cars_test_annos.mat has no classes; use {_TEST}." if found else ""
        raise TophitError(f"{name}: its annotations have no {' and no '.join(missing)}.{hint}")
    return found


def _class_names(content: dict[str, Any]) -> list[str]:
    return [str(name) for name in np.atleast_1d(content["class_names"])]


def _row(path: Path, annotation: Any, names: list[str], boxes: bool) -> ImageRow:
    """Classes count from 1, and so do the pixels of boxes, whose last pixel belongs to the box."""
    kind = int(getattr(annotation, "class"))
    box: Box | None = None
    if boxes:
        a = annotation
        box = float(a.bbox_x1) - 1, float(a.bbox_y1) - 1, float(a.bbox_x2), float(a.bbox_y2)
    split = "train" if kind <= _LAST_TRAINING_CLASS else "test"
    name = names[kind - 1]
    return ImageRow(path, f"{kind:03d} {name}", split, box=box, metadata={"maker": _maker(name)})


def _maker(name: str) -> str:
    return next((maker for maker in _MAKERS_OF_TWO_WORDS if name.startswith(f"{maker} ")), name.split()[0])
