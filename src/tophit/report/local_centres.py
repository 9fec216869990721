"""The local centres a run found: for each proxy the nearest training images."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tophit.data.manifest import ImageRow
from tophit.data.splits import merge_classes
from tophit.embedding.rows import embed_rows
from tophit.models.embedder import load
from tophit.progress import Progress
from tophit.training.proxies import load_proxies
from tophit.training.run import Run, data_of_run

_ROWS = 1024  # proxies or images compared at a time


@dataclass(frozen=True)
class NearImage:
    """A training image near a proxy; ``similarity`` is their cosine."""

    row: ImageRow
    similarity: float


@dataclass(frozen=True)
class LocalCentre:
    """One proxy of a class.

    ``centre`` is the first of the class's proxies that has merged with it (itself if none has), ``images`` how many
    of the class's training images are nearer to it than to the class's other proxies, ``nearest`` the nearest
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

    The training images are read again from the run's data, or from ``data`` if they have moved; a label is the one
    trained on, after merging.
    """
    proxies = load_proxies(run)
    recipe = Run.open(run).recipe()
    train = data_of_run(str(run), data or recipe.data.manifest).where("train")
    rows = merge_classes(train, recipe.data.merge_classes).rows
    embedded = embed_rows(load(run), rows, progress)
    rows = [rows[i] for i in embedded.rows]
    images = _images_of_proxies(proxies.classes, proxies.vectors, embedded.vectors, [row.label for row in rows])
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


def _images_of_proxies(classes: list[str], proxies: np.ndarray, vectors: np.ndarray, labels: list[str]) -> np.ndarray:
    """Return how many images (C, K) of its own class each proxy is the nearest for."""
    place = {name: number for number, name in enumerate(classes)}
    own = np.asarray([place[label] for label in labels])
    counts = np.zeros(proxies.shape[:2], np.int64)
    for start in range(0, len(own), _ROWS):
        part = own[start : start + _ROWS]
        chosen = np.einsum("nkd,nd->nk", proxies[part], vectors[start : start + _ROWS]).argmax(axis=1)
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
