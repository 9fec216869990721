"""The data sets of the claims, each in one of three regimes, and what is trained on it.

Files come from a folder that is laid out like this; what is missing leaves its sets out:

    cub200/CUB_200_2011/                            photos, in the archive's layout
    cub200/efficientnet_lite0_features.npz          feature files
    cars196/efficientnet_lite0_features.npz
    gso1008/images/OBJECT/0.jpg …                   folders of views
    emoji8/emoji8_64.npz                            an archive of drawings
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.image_sets import drawings, views
from tophit.data.feature_files import FeatureFile, read_feature_file
from tophit.files import replace_file

COMPONENTS = 256
REGIMES = {
    "a": "photos, few classes with many images, the last stages of a network from ImageNet weights",
    "b": "many classes with few images, the last stages of a network from ImageNet weights",
    "c": "heads of frozen features",
}
Prepare = Callable[[Path, Path], str]
"""From a file of the data folder, and a folder to write to, to what a recipe names as its data."""


@dataclass(frozen=True)
class ClaimSet:
    """A set: its data, what learns, the search, and which of the papers' sets it stands for."""

    title: str
    regime: str  # of the first table; empty: none
    source: str  # the file or folder under the data folder
    prepare: Prepare
    like: str  # the papers' set whose numbers are shown beside: CUB, Cars or SOP
    embedder: dict[str, Any]
    rates: tuple[float, ...]
    values: int  # of each candidate's own hyper-parameters
    epochs: int
    patience: int
    seconds: float  # of the processor for one run, measured once, for the estimate of what is left
    note: str
    most_seeds: int = 6  # each has validation classes of its own, and there are no more parts
    few_images: bool = False  # per class, as in SOP: papers have other settings then
    one_by_one: bool = False  # search rates, then other values at the best rate: where a run takes a minute
    precision: str = "fp32"  # of the embedder; losses are computed in float32
    clean: str = ""  # the same set without what was changed in its labels or sizes; its settings are kept

    @property
    def trials(self) -> int:
        """How many trials a search runs: all combinations, or all rates and then the other values at the best rate."""
        return len(self.rates) + self.values - 1 if self.one_by_one else len(self.rates) * self.values


def reduced(file: Path, path: Path, change: Callable[[FeatureFile], FeatureFile] = lambda held: held) -> Path:
    """Write a feature file's 256 principal components, of the training classes, centred; return the new file.

    A head on them costs less than one on all 1280 numbers. ``change`` may change labels or leave out rows afterwards.
    """
    if not path.is_file():
        held = read_feature_file(file)
        learns = np.asarray(held.splits) == "train"
        centred = held.features - held.features[learns].mean(axis=0)
        _, directions = np.linalg.eigh(centred[learns].T @ centred[learns])
        components = centred @ directions[:, : -COMPONENTS - 1 : -1]
        components /= np.linalg.norm(components[learns], axis=1).mean()
        found = change(FeatureFile(components, held.labels, held.splits, held.names))
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            np.savez(
                temporary,
                features=found.features,
                labels=np.asarray(found.labels),
                split=np.asarray(found.splits),
                names=np.asarray(found.names),
            )
    return path


def mislabelled(share: float) -> Callable[[FeatureFile], FeatureFile]:
    """Return what gives a share of the training rows the label of another training class, the same rows every time."""

    def change(held: FeatureFile) -> FeatureFile:
        generator = np.random.default_rng(0)
        labels = list(held.labels)
        rows = [row for row, split in enumerate(held.splits) if split == "train"]
        classes = sorted({labels[row] for row in rows})
        for row in generator.permutation(rows)[: round(share * len(rows))].tolist():
            others = [name for name in classes if name != held.labels[row]]
            labels[row] = others[int(generator.integers(len(others)))]
        return FeatureFile(held.features, labels, held.splits, held.names)

    return change


def long_tailed(least: int = 4) -> Callable[[FeatureFile], FeatureFile]:
    """Return what leaves training classes from all their images down to ``least``, on a geometric scale."""

    def change(held: FeatureFile) -> FeatureFile:
        generator = np.random.default_rng(0)
        labels, splits = np.asarray(held.labels), np.asarray(held.splits)
        classes = generator.permutation(sorted(set(labels[splits == "train"].tolist())))
        kept = np.flatnonzero(splits != "train").tolist()
        for place, name in enumerate(classes.tolist()):
            rows = np.flatnonzero((labels == name) & (splits == "train"))
            count = round(len(rows) * (least / len(rows)) ** (place / (len(classes) - 1)))
            kept += generator.permutation(rows)[: max(least, count)].tolist()
        order = sorted(kept)
        return FeatureFile(
            held.features[order], *([part[row] for row in order] for part in (held.labels, held.splits, held.names))
        )

    return change


def _components(change: Callable[[FeatureFile], FeatureFile] = lambda held: held) -> Prepare:
    return lambda file, folder: str(reduced(file, folder / "components.npz", change))


def _photos(folder: Path, out: Path) -> str:
    return f"cub200:{folder.resolve()}"


def _views(folder: Path, out: Path) -> str:
    return str(views(folder, out / "manifest.csv"))


def _drawings(archive: Path, folder: Path) -> str:
    return str(drawings(archive, folder))


def _head(dim: int, **more: Any) -> dict[str, Any]:
    return {"trainable": "head", "dim": dim, "head_start": "pca", **more}


_CUB, _CARS = (f"{name}/efficientnet_lite0_features.npz" for name in ("cub200", "cars196"))


_NETWORK_RATES = (2e-4, 6e-4, 6e-5)  # the last since most searches had ended at the lower edge of the first two


def _last(size: int) -> dict[str, Any]:
    return {"trainable": "last", "dim": 512, "head_start": "pca", "size": size, "crop": 1.0}


def _heads(title: str, source: str, like: str, most_seeds: int = 6) -> ClaimSet:
    return ClaimSet(
        title,
        "c",
        source,
        _components(),
        like,
        _head(COMPONENTS),
        rates=(1e-4, 3e-4, 1e-3),
        values=2,
        epochs=60,
        patience=8,
        seconds=4.0,
        note="a linear map of 256 components of frozen EfficientNet-Lite0 features",
        most_seeds=most_seeds,
    )


def _heads_of_images(held: ClaimSet, size: int) -> ClaimSet:
    """Return a set of images with heads of frozen features instead of stages: beyond the papers' claims."""
    return replace(
        _heads(f"{held.title}, heads", held.source, held.like),
        regime="",
        prepare=held.prepare,
        embedder=_head(512, size=size, crop=1.0),
        few_images=True,
        note=f"frozen EfficientNet-Lite0 features at {size} pixels",
    )


def _sets() -> dict[str, ClaimSet]:
    found = {
        "cub-heads": _heads("CUB-200-2011, features", _CUB, "CUB"),
        "cars-heads": _heads("Cars196, features", _CARS, "Cars", most_seeds=4),  # 98 classes have two whole thirds
        "emoji": ClaimSet(
            "emoji",
            "b",
            "emoji8/emoji8_64.npz",
            _drawings,
            "SOP",
            _last(64),
            rates=_NETWORK_RATES,
            values=2,
            epochs=40,
            patience=4,
            seconds=25.0,
            note="drawings of 805 + 805 emoji by up to 8 designers, 64 pixels; the last 3 stages of EfficientNet-Lite0",
            few_images=True,
            one_by_one=True,
            precision="bf16",
        ),
        "products": ClaimSet(
            "scanned products",
            "b",
            "gso1008/images",
            _views,
            "SOP",
            _last(128),
            rates=_NETWORK_RATES,
            values=2,
            epochs=40,
            patience=4,
            seconds=35.0,
            note="renders of 504 + 504 scanned products, 8 views each, 128 pixels; the last 3 stages",
            few_images=True,
            one_by_one=True,
            precision="bf16",
        ),
        "cub-photos": ClaimSet(
            "CUB-200-2011, photos",
            "a",
            "cub200/CUB_200_2011",
            _photos,
            "CUB",
            _last(112),
            rates=_NETWORK_RATES,
            values=2,
            epochs=12,
            patience=3,
            seconds=25.0,
            note="photos at 112 pixels; the last 3 stages of EfficientNet-Lite0",
            one_by_one=True,
            precision="bf16",
        ),
    }
    for name, size in (("emoji", 64), ("products", 128)):
        found[f"{name}-heads"] = _heads_of_images(found[name], size)
    for clean in ("cub-heads", "cars-heads"):
        changes = {
            f"noise{percent}": (f"{percent}% wrong labels", mislabelled(percent / 100)) for percent in (5, 20, 40)
        }
        for word, (title, change) in (changes | {"tail": ("long tail", long_tailed())}).items():
            held = found[clean]
            found[f"{clean}-{word}"] = replace(
                held, title=f"{held.title}, {title}", prepare=_components(change), clean=clean
            )
    return found


SETS = _sets()
