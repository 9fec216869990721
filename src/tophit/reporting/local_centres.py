"""The local centres of a run: for each proxy the nearest training images, for the page and as a figure."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.data.splits import merge_classes
from tophit.embedding.rows import embed_rows
from tophit.figures import Drawing
from tophit.figures.galleries import Cell, picture_grid, rounded
from tophit.models.embedder import load
from tophit.progress import Progress
from tophit.reporting.pictures import Pictures
from tophit.training.proxies import load_proxies
from tophit.training.run import Run, data_of_run

_ROWS = 1024  # proxies or images compared at a time
_CLASSES = 12  # shown on the page
_CENTRES = 4  # of each class on the page


@dataclass(frozen=True)
class NearImage:
    """A training image near a proxy; ``similarity`` is their cosine."""

    row: ImageRow
    similarity: float


@dataclass(frozen=True)
class LocalCentre:
    """One proxy of a class.

    ``centre`` is the first of the class's proxies that has merged with it, or itself; ``images`` says how many
    of the class's training images are nearer to it than to the class's other proxies; ``nearest`` are the nearest
    training images of any class, best first.
    """

    label: str
    proxy: int
    centre: int
    vector: np.ndarray
    images: int
    nearest: list[NearImage]


def local_centres(
    run: str | Path, k: int = 5, progress: Progress | None = None, data: str | None = None
) -> list[LocalCentre]:
    """Return the proxies of a run's best embedder, class by class, each with its k nearest training images.

    The training images are read from the run's data, or from ``data`` if they have moved. Labels are those of training,
    after merging.
    """
    proxies = load_proxies(run)
    recipe = Run.open(run).recipe()
    train = data_of_run(str(run), data).where("train")
    rows = merge_classes(train, recipe.data.merge_classes).rows
    embedded = embed_rows(load(run), rows, progress)
    rows = [rows[i] for i in embedded.rows]
    images = _images_of_proxies(proxies.classes, proxies.vectors, embedded.vectors, [row.classes for row in rows])
    classes, count, dim = proxies.vectors.shape
    nearest = _nearest(proxies.vectors.reshape(classes * count, dim), embedded.vectors, min(k, len(rows)))
    centres = proxies.centres()
    return [
        LocalCentre(
            label=proxies.classes[number // count],
            proxy=number % count,
            centre=int(centres[number // count, number % count]),
            vector=proxies.vectors[number // count, number % count],
            images=int(images[number // count, number % count]),
            nearest=[NearImage(rows[i], similarity) for i, similarity in found],
        )
        for number, found in enumerate(nearest)
    ]


def _images_of_proxies(
    classes: list[str], proxies: np.ndarray, vectors: np.ndarray, of_images: Sequence[tuple[str, ...]]
) -> np.ndarray:
    """Return the number of images (C, K) of its own class to which each proxy is the nearest.

    ``of_images`` are the classes of each image; one with several labels counts for each of them.
    """
    place = {name: number for number, name in enumerate(classes)}
    own = np.asarray([place[name] for names in of_images for name in names])
    image = np.repeat(np.arange(len(of_images)), [len(names) for names in of_images])
    counts = np.zeros(proxies.shape[:2], np.int64)
    for start in range(0, len(own), _ROWS):
        part = own[start : start + _ROWS]
        chosen = np.einsum("nkd,nd->nk", proxies[part], vectors[image[start : start + _ROWS]]).argmax(axis=1)
        np.add.at(counts, (part, chosen), 1)
    return counts


def _nearest(proxies: np.ndarray, vectors: np.ndarray, k: int) -> list[list[tuple[int, float]]]:
    """Return for each proxy (P, d) the k nearest vectors (N, d) with their cosines, best first."""
    found: list[list[tuple[int, float]]] = []
    for start in range(0, len(proxies), _ROWS):
        similarity = proxies[start : start + _ROWS] @ vectors.T
        order = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
        for row, columns in zip(similarity, order, strict=True):
            found.append([(int(i), float(row[i])) for i in columns])
    return found


def centres_part(centres: Sequence[LocalCentre], pictures: Pictures) -> dict[str, Any]:
    """Return the classes with the most centres in use; if each class has one proxy, classes at equal steps.

    A centre is a group of proxies that have merged. It is in use if a training image of its class is nearer to it than
    to the class's other centres; the others are left out.
    """
    classes: dict[str, list[list[LocalCentre]]] = {}
    for label, proxies in _by(centres, lambda one: one.label).items():
        groups = list(_by(proxies, lambda one: str(one.centre)).values())
        groups.sort(key=lambda group: -_images(group))
        classes[label] = [group for group in groups if _images(group)] or groups[:1]
    count = max(Counter(one.label for one in centres).values())
    if count == 1:
        chosen = list(classes)[:: max(1, -(-len(classes) // _CLASSES))]
        text = f"The training images nearest to the proxy of {len(chosen)} of {len(classes):,} classes."
    else:
        chosen = sorted(classes, key=lambda label: -len(classes[label]))[:_CLASSES]
        text = (
            f"Each class has {count} proxies; near ones merge, and some have no image. The training images nearest to "
            f"each centre in use, for the {len(chosen)} of {len(classes):,} classes with the most centres."
        )
    text += (
        f" Below each picture: its cosine similarity to the {'proxy' if count == 1 else 'centre'}, and its class if "
        "that is another one. They are the nearest of all training images, whether or not they belong to it."
    )
    return {"text": text, "classes": [_class(label, classes[label], pictures) for label in chosen]}


def _by(centres: Sequence[LocalCentre], name: Callable[[LocalCentre], str]) -> dict[str, list[LocalCentre]]:
    groups: dict[str, list[LocalCentre]] = {}
    for one in centres:
        groups.setdefault(name(one), []).append(one)
    return groups


def _images(group: Sequence[LocalCentre]) -> int:
    return sum(one.images for one in group)


def _class(label: str, groups: Sequence[Sequence[LocalCentre]], pictures: Pictures) -> dict[str, Any]:
    images = sum(_images(group) for group in groups)
    shown = []
    for group in groups[:_CENTRES]:
        first = max(group, key=lambda one: one.images)
        nearest = [
            {
                "picture": pictures.add(near.row),
                "similarity": round(near.similarity, 3),
                "own": label in near.row.classes,
            }
            for near in first.nearest
        ]
        text = f"{_images(group)} of the class's {images} images"
        shown.append({"number": first.proxy, "text": text, "nearest": nearest})
    return {"label": label, "used": len(groups), "proxies": shown}


def centres_drawing(centres: Sequence[LocalCentre], classes: int = 4, k: int = 5) -> Drawing:
    """Return the training images nearest to the centres of some classes: those with the most centres in use.

    A centre is a group of proxies that have merged, shown by its first proxy; it is in use if an image of its class is
    nearer to it than to the class's other centres.
    """
    images: Counter[tuple[str, int]] = Counter()
    for one in centres:
        images[one.label, one.centre] += one.images
    used: dict[str, list[LocalCentre]] = {}
    for one in centres:
        if one.proxy == one.centre and images[one.label, one.centre]:
            used.setdefault(one.label, []).append(one)
    chosen = sorted(used, key=lambda label: (-len(used[label]), label))[:classes]
    shown = [one for label in chosen for one in sorted(used[label], key=lambda one: -images[label, one.centre])[:3]]
    numbers: dict[str, list[Any]] = {
        column: [] for column in ("class", "centre", "images", "rank", "image", "label", "similarity")
    }
    lines: list[list[Cell]] = []
    heads: list[str] = []
    for one in shown:
        count = images[one.label, one.centre]
        heads.append(f"{one.label}\ncentre {one.centre + 1}\n{count} images")
        lines.append(
            [
                Cell(near.row, rounded(near.similarity), "right" if one.label in near.row.classes else "wrong")
                for near in one.nearest[:k]
            ]
        )
        for rank, near in enumerate(one.nearest[:k], 1):
            values = (one.label, one.centre + 1, count, rank, str(near.row.path), near.row.label, near.similarity)
            for column, value in zip(numbers.values(), values, strict=True):
                column.append(value)
    caption = (
        f"Training images nearest to the centres of the {len(chosen)} classes with the most centres in use (up to 3 "
        "of each), with their cosine similarity to it. They are the nearest of all images, whether or not they "
        "belong to that centre. Left: how many images of the class are nearer to this centre than to "
        "the class's others. Dashed red frame: an image of another class."
    )
    figure = picture_grid(lines, k, [], heads)
    return Drawing("local_centres", "Local centres", caption, numbers, figure)
