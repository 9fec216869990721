"""Whether results that are told 90% are right in 90 of 100 cases, on classes that neither trained nor calibrated.

    python -m benchmarks.calibration runs/cub runs/cars runs/products
    python -m benchmarks.calibration emoji8_64.npz omniglot28.npz --most 8   # arrays of images, by the bare backbone
    python -m benchmarks.calibration runs/products --far CUB_200_2011/images   # also: noise, and 300 of these pictures

Each run's test classes are divided in half at random, six times (three divisions, both ways): one half calibrates, the
other is checked, in galleries like those that calibrated and in others. Intervals are bootstrap intervals over classes.
"Index" is the calibration that ``tophit index`` makes: three quarters of the images are the gallery, which calibrates
itself, and the other images of the same classes ask. "Without labels" are chances by scores alone, as an index without
labels has them. Far pictures are of nothing that the index holds: what are they told by ``search`` and by ``name``?
"""

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from tophit.data.folders import part_of
from tophit.data.manifest import ImageRow
from tophit.embedding.features import cached_features
from tophit.embedding.rows import embed_rows
from tophit.evaluation.calibration import UNKNOWN, Calibration, calibrate, told
from tophit.evaluation.calibration_check import Told, auroc, reliability_of
from tophit.evaluation.calibration_features import RankedLists
from tophit.evaluation.ranked_lists import Labelled, draw_lists, search
from tophit.models.embedder import load
from tophit.training.run_data import data_to_test

GALLERIES = {
    "the same size": (1.0, None),
    "a quarter of the classes": (0.25, None),
    "3 images of each class": (1.0, 3),
    "a quarter, 3 images of each": (0.25, 3),
}
FEW = (8, 12, 25)
BACKBONE = "efficientnet-lite0"
MOST_FAR = 300


def main() -> None:
    """Print a table for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="finished runs, or .npz files: images, labels, split by class")
    parser.add_argument("--divisions", type=int, default=3)
    parser.add_argument("--unknown", type=float, default=UNKNOWN, help="share of queries without their class")
    parser.add_argument("--most", type=int, default=8, help="of an .npz file: images of each class")
    parser.add_argument("--far", nargs="*", default=[], help="folders of pictures of other things than the runs'")
    arguments = parser.parse_args()
    for run in arguments.runs:
        is_file = run.endswith(".npz")
        data = file_images(run, arguments.most, arguments.unknown) if is_file else test_images(run, arguments.unknown)
        print(f"\n{run}: {len(data.vectors):,} images of {len(set(data.labels))} test classes\n")
        print("| calibrated on | checked in | told 85 to 95% | told | right | AUROC of names | names told 85 to 95% |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for (learned, gallery), found in measure(data, arguments.divisions).items():
            print(row(learned, gallery, found))
        if arguments.far:
            print(
                "\n| far pictures | first result told, mean | told 50% or more | name told, mean | told 50% or more |"
            )
            print("| --- | --- | --- | --- | --- |")
            for name, vectors in far_vectors(run, arguments.far).items():
                print(far_row(name, vectors, data, arguments.divisions))


@dataclass(frozen=True)
class Images:
    """Vectors of images and their class numbers, and the share of queries that search without their class."""

    vectors: np.ndarray
    labels: np.ndarray
    unknown: float

    def of(self, classes: np.ndarray) -> "Images":
        """Return the images of some classes."""
        some = np.isin(self.labels, classes)
        return Images(self.vectors[some], self.labels[some], self.unknown)

    def calibrated(self) -> Calibration:
        """Calibrate on them."""
        return calibrate(self.vectors, self.labels, unknown=self.unknown)

    def told_by(
        self,
        made: Calibration,
        generator: np.random.Generator,
        share: float = 1.0,
        most: int | None = None,
        by_scores: bool = False,
    ) -> list[Told]:
        """Return what a calibration tells about searches among them; nothing if the gallery would be too small."""
        lists = draw_lists(Labelled.of(self.vectors, self.labels), self.unknown, generator, share, most)
        if lists is None:
            return []
        first = np.sort(np.unique(self.labels, return_index=True)[1])  # numbers are in the order of first appearance
        return [replace(told(made, lists, by_scores), classes=self.labels[first][lists.classes])]


def test_images(run: str, unknown: float) -> Images:
    """Return the test images of a run."""
    part = part_of(data_to_test(run, None), "test")
    embedded = embed_rows(load(run), part.rows)
    names = [part.rows[number].label for number in embedded.rows]
    return Images(embedded.vectors, np.unique(names, return_inverse=True)[1], unknown)


def file_images(path: str, most: int, unknown: float) -> Images:
    """Return the test classes of an array of images, at most so many of each, by the pretrained backbone."""
    with np.load(path, allow_pickle=False) as file:
        images, labels, split = file["images"], file["labels"], file["split"]
    rows, generator = np.flatnonzero(split[labels] == "test"), np.random.default_rng(0)
    kept = [generator.permutation(rows[labels[rows] == each])[:most] for each in np.unique(labels[rows])]
    chosen = np.sort(np.concatenate(kept))
    pictures = [Image.fromarray(images[row].squeeze()).convert("RGB") for row in chosen]
    return Images(load(BACKBONE).encode(pictures), np.unique(labels[chosen], return_inverse=True)[1], unknown)


def measure(data: Images, divisions: int) -> dict[tuple[str, str], list[Told]]:
    """Return what was told in each situation."""
    found: dict[tuple[str, str], list[Told]] = {}
    classes = np.unique(data.labels)
    for division in range(divisions):
        for own, other in halves_of(classes, division):
            generator, checked = np.random.default_rng(division), data.of(other)
            made = data.of(own).calibrated()
            for name, (share, most) in GALLERIES.items():
                some = checked.told_by(made, generator, share, most)
                found.setdefault((f"{len(own)} classes", name), []).extend(some)
            some = checked.told_by(made, np.random.default_rng(division), by_scores=True)
            found.setdefault((f"{len(own)} classes", "the same size, without labels"), []).extend(some)
            for few in FEW:
                some = checked.told_by(data.of(own[:few]).calibrated(), generator)
                found.setdefault((f"{few} classes", f"{len(own) / few:.0f} times larger"), []).extend(some)
        key = ("the index itself", "the same index, new images")
        found.setdefault(key, []).extend(told_by_index(data, division))
    return found


def halves_of(classes: np.ndarray, division: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Divide classes in half at random: which calibrate and which are checked, both ways."""
    order = np.random.default_rng(division).permutation(classes)
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    return [(first, second), (second, first)]


def far_vectors(run: str, folders: list[str]) -> dict[str, np.ndarray]:
    """Return vectors of noise, and of pictures of each folder, by the head of a run on the backbone's features."""
    backbone, embedder, generator = load(BACKBONE), load(run), np.random.default_rng(0)

    def embedded(paths: list[Path]) -> np.ndarray:
        features = cached_features(backbone, [ImageRow(path, "") for path in paths]).values
        return embedder.embed_arrays(features)

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.png" for number in range(60)]
        for number, path in enumerate(paths):  # noise of each pixel, of large squares, and one colour
            side = (224, 7, 1)[number % 3]
            drawn = generator.integers(0, 255, (side, side, 3), dtype=np.uint8)
            Image.fromarray(drawn).resize((224, 224), Image.Resampling.NEAREST).save(path)
        found = {"noise": embedded(paths)}
    for name in folders:
        pictures = sorted(Path(name).rglob("*.jpg"))
        chosen = generator.permutation(len(pictures))[:MOST_FAR]
        found[Path(name).parent.name] = embedded([pictures[number] for number in chosen])
    return found


def far_row(name: str, vectors: np.ndarray, data: Images, divisions: int) -> str:
    """Return a row of the table of far pictures, which search each half of the test classes."""
    first, names = [], []
    for division in range(divisions):
        for own, other in halves_of(np.unique(data.labels), division):
            made, checked = data.of(own).calibrated(), data.of(other)
            nobody = np.full(len(vectors), -1)
            searches = Labelled.of(vectors, nobody, checked.vectors, checked.labels)
            everything = np.arange(len(checked.labels)), np.ones(len(vectors), bool)
            scores, labels = search(searches, np.arange(len(vectors)), *everything)
            sizes = len(checked.labels), len(checked.labels) / len(other)
            said = told(made, RankedLists(scores, labels, nobody, everything[1], *sizes))
            first.append(said.chances[:, 0])
            names.append(said.name_chances)
    told_first, told_names = np.concatenate(first), np.concatenate(names)
    cells = [f"{values.mean():.0%} | {np.mean(values >= 0.5):.0%}" for values in (told_first, told_names)]
    return f"| {name} ({len(vectors)}) | {' | '.join(cells)} |"


def told_by_index(data: Images, seed: int) -> list[Told]:
    """Return what an index that calibrates itself tells about new images of its classes."""
    order = np.random.default_rng(seed).permutation(len(data.labels))
    asking, gallery = order[: len(order) // 4], np.sort(order[len(order) // 4 :])
    own = data.vectors[gallery], data.labels[gallery]
    searches = Labelled.of(data.vectors[asking], data.labels[asking], *own)
    lists = draw_lists(searches, data.unknown, np.random.default_rng(seed))
    made = calibrate(*own, unknown=data.unknown)
    return [] if lists is None else [told(made, lists)]


def row(learned: str, gallery: str, found: list[Told]) -> str:
    """Return a row of the table: all divisions together."""
    names = ("name_chances", "name_right", "known", "classes")
    rest = [np.concatenate([getattr(each, name) for each in found]) for name in names]
    first = (np.concatenate([getattr(each, name)[:, :10] for each in found]) for name in ("chances", "right"))
    whole = Told(*first, *rest)
    near = reliability_of(whole)
    area = "{:.3f} ({:.3f} to {:.3f})".format(*auroc(whole.name_chances, whole.known, whole.classes))
    some = (whole.name_chances >= 0.85) & (whole.name_chances < 0.95)
    named = f"{some.sum():,}: {whole.name_right[some].mean():.1%} right" if some.any() else "none"
    if not near["results"]:
        return f"| {learned} | {gallery} | none | | | {area} | {named} |"
    right = f"{near['right']:.1%} ({near['low']:.1%} to {near['high']:.1%})"
    return f"| {learned} | {gallery} | {near['results']:,} | {near['told']:.1%} | {right} | {area} | {named} |"


if __name__ == "__main__":
    main()
