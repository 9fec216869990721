"""What training a head does for the classes that it learns, and whether their chances hold.

    python -m benchmarks.learned_classes cub200/efficientnet_lite0_features.npz products.csv --classes 60 190

A newcomer trains on a folder and indexes all of it, so most searches are of learned classes, which no test of unseen
classes shows. So many classes with six images each are drawn, the recipe ``head`` learns from its share of them, and
all are indexed. Asked are two new images of each class, and each image of the index among the others. For learned and
for other classes apart: recall@1 of the backbone and of the trained embedder, and what the calibration that ``tophit
index`` makes tells about names, with a fifth of the queries of classes that the index does not hold. An ``.npz`` file
holds features; a manifest names images, which the default backbone embeds.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tophit
from tophit.data.folders import part_of
from tophit.data.manifest import read_manifest
from tophit.embedding.features import cached_features
from tophit.evaluation.calibration import UNKNOWN, calibrate, told
from tophit.evaluation.calibration_check import Told
from tophit.evaluation.ranked_lists import Labelled, draw_lists
from tophit.models.embedder import load
from tophit.training.run_data import data_to_test

BACKBONE = "efficientnet-lite0"
IMAGES, NEW = 6, 2


def main() -> None:
    """Print a table of all sets, all draws of a size pooled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="feature files (.npz) or manifests of images")
    parser.add_argument("--classes", type=int, nargs="+", default=[60, 190])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--start", default="whitened", help="embedder.head_start of the recipe")
    arguments = parser.parse_args()
    print("| set | classes | asked | recall@1, backbone | trained | names told | right | told 85% or more | right |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for path in arguments.sets:
        features, labels = features_of(path)
        for classes in arguments.classes:
            parts: dict[str, list[Found]] = {}
            for draw in range(arguments.draws):
                for asked, found in measure(features, labels, classes, draw, arguments.start):
                    parts.setdefault(asked, []).append(found)
            for asked, found in parts.items():
                print(f"| {Path(path).parent.name} | {classes} | {asked} | {row(found)} |", flush=True)


@dataclass(frozen=True)
class Found:
    """Recall@1 of the backbone and of the trained embedder, and what was told about the searches."""

    backbone: float
    trained: float
    told: Told


def features_of(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features (N, channels) of a file, and the class numbers (N,)."""
    if path.endswith(".npz"):
        with np.load(path, allow_pickle=False) as file:
            return file["features"].astype(np.float32), file["labels"]
    rows = read_manifest(path).rows
    found = cached_features(load(BACKBONE), rows)
    return found.values, np.unique([rows[i].label for i in found.rows], return_inverse=True)[1]


def measure(
    features: np.ndarray, labels: np.ndarray, classes: int, seed: int, start: str
) -> Iterator[tuple[str, Found]]:
    """Train on drawn classes; yield, for each kind of query, both recalls and what was told."""
    generator = np.random.default_rng(seed)
    chosen = generator.permutation(np.unique(labels))[:classes]
    drawn = [generator.permutation(np.flatnonzero(labels == each))[: IMAGES + NEW] for each in chosen]
    index, new = (np.concatenate([each[part] for each in drawn]) for part in (slice(IMAGES), slice(IMAGES, None)))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "x.npz", features=features[index], labels=labels[index].astype(str))
        result = tophit.train(
            Path(folder) / "x.npz", out=Path(folder) / "run", seed=seed, embedder={"head_start": start}
        )
        learned = np.isin(
            labels, [int(each.label) for each in part_of(data_to_test(str(result.folder), None), "train")]
        )
        vectors = load(result.folder).embed_arrays(features)
    places = np.flatnonzero(~learned[index])
    others = index[places]
    made = calibrate(vectors[others], labels[others], vectors[index], labels[index], places)
    for who, mine in (("learned", learned), ("other", ~learned)):
        for what, asking, own in (
            ("new images", new[mine[new]], None),
            ("the index's images", index[mine[index]], np.flatnonzero(mine[index])),
        ):
            before, after = (recall(searches(each, labels, asking, index, own)) for each in (features, vectors))
            lists = draw_lists(searches(vectors, labels, asking, index, own), UNKNOWN, generator)
            assert lists is not None
            yield f"{who}, {what}", Found(before, after, told(made, lists))


def searches(
    vectors: np.ndarray, labels: np.ndarray, asking: np.ndarray, index: np.ndarray, own: np.ndarray | None
) -> Labelled:
    """Return the searches of rows ``asking`` among rows ``index``; ``own`` are their places in it."""
    return Labelled.of(vectors[asking], labels[asking], vectors[index], labels[index], own)


def recall(data: Labelled) -> float:
    """Return recall@1."""
    scores = data.queries @ data.gallery.T
    inside = np.flatnonzero(data.own >= 0)
    scores[inside, data.own[inside]] = -np.inf
    return float(np.mean(data.gallery_classes[scores.argmax(axis=1)] == data.query_classes))


def row(found: list[Found]) -> str:
    """Return the cells of a row, over all draws."""
    before, after = np.mean([each.backbone for each in found]), np.mean([each.trained for each in found])
    chances = np.concatenate([each.told.name_chances for each in found])
    right = np.concatenate([each.told.name_right for each in found])
    sure = chances >= 0.85
    told_sure = f"{sure.sum():,} | {right[sure].mean():.1%}" if sure.any() else "none | "
    return f"{before:.1%} | {after:.1%} | {chances.mean():.1%} | {right.mean():.1%} | {told_sure}"


if __name__ == "__main__":
    main()
