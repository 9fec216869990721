"""Published protocols with random galleries: VehicleID. In-Shop has fixed query and gallery sets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tophit.evaluation.inputs import Array, labelled_vectors
from tophit.evaluation.retrieval import retrieval_metrics

VEHICLE_ID_SIZES: Mapping[str, int] = {"small": 800, "medium": 1600, "large": 2400}


def vehicle_id_metrics(
    embeddings: Array,
    labels: Array,
    test_sets: Mapping[str, int | Sequence[Any] | np.ndarray] = VEHICLE_ID_SIZES,
    draws: int = 10,
    seed: int = 0,
    **options: Any,
) -> dict[str, dict[str, float]]:
    """Return the metrics of each test set, averaged over draws of the gallery (VehicleID's protocol).

    A test set is a number of vehicles, drawn by ``seed``, or the published list of its vehicles' labels. Each draw puts
    one random image of every vehicle into the gallery; its other images are queries. A vehicle with one image is in the
    gallery only. ``options`` such as ``recall_at`` are passed to ``retrieval_metrics``.
    """
    vectors, classes = labelled_vectors(embeddings, labels)
    if draws < 1:
        raise ValueError(f"draws must be at least 1, not {draws}")
    names = labels.tolist() if hasattr(labels, "tolist") else list(labels)  # type: ignore[union-attr]
    code_of = dict(zip(names, classes.tolist(), strict=True))
    results: dict[str, dict[str, float]] = {}
    for number, (name, wanted) in enumerate(test_sets.items()):
        generator = np.random.default_rng((seed, number))
        chosen = np.isin(classes, _vehicles(wanted, code_of, name, generator))
        rows, vehicles = vectors[np.flatnonzero(chosen)], classes[chosen]
        runs = [_one_draw(rows, vehicles, generator, options) for _ in range(draws)]
        results[name] = {metric: float(np.mean([run[metric] for run in runs])) for metric in runs[0]}
    return results


def draw_one_per_class(classes: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return a mask (N,) that is true for one random row of every class."""
    order = generator.permutation(len(classes))
    chosen = np.zeros(len(classes), np.bool_)
    chosen[order[np.unique(classes[order], return_index=True)[1]]] = True
    return chosen


def _vehicles(
    wanted: int | Sequence[Any] | np.ndarray, code_of: Mapping[Any, int], name: str, generator: np.random.Generator
) -> np.ndarray:
    if isinstance(wanted, int | np.integer):
        if not 1 <= wanted <= len(code_of):
            raise ValueError(f"the test set '{name}' needs {wanted} vehicles, but the labels have {len(code_of)}")
        return generator.choice(len(code_of), int(wanted), replace=False)
    labels = wanted.tolist() if isinstance(wanted, np.ndarray) else list(wanted)
    missing = [label for label in labels if label not in code_of]
    if missing or not labels:
        raise ValueError(f"the test set '{name}' names vehicles without images, such as {missing[:3]}")
    return np.asarray([code_of[label] for label in labels])


def _one_draw(rows: Any, vehicles: np.ndarray, generator: np.random.Generator, options: Mapping[str, Any]) -> Mapping:
    in_gallery = draw_one_per_class(vehicles, generator)
    if in_gallery.all():
        raise ValueError("every vehicle has one image, so no image is left as a query")
    query, gallery = np.flatnonzero(~in_gallery), np.flatnonzero(in_gallery)
    return retrieval_metrics(rows[query], vehicles[query], rows[gallery], vehicles[gallery], **options)
