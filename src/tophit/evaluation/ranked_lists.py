"""Searches to calibrate with: queries in galleries drawn from labelled vectors, some without their own class."""

from dataclasses import dataclass

import numpy as np
import torch

from tophit.evaluation.calibration_features import DEPTH, RankedLists
from tophit.evaluation.inputs import Array, as_vectors, check_labelled, encode_labels, unit_rows

MOST_QUERIES = 1000
_MOST_OF_A_CLASS = 20  # queries, so that large classes don't outweigh the others
_SMALLEST = 20  # items that a drawn gallery must have
_BLOCK = 2**25  # scores in memory at a time


@dataclass(frozen=True)
class Labelled:
    """Unit vectors that search, and unit vectors that are searched, with their classes as numbers.

    ``own`` (queries,) is the place of each query in the gallery, -1 where it is not there.
    """

    queries: np.ndarray
    query_classes: np.ndarray
    gallery: np.ndarray
    gallery_classes: np.ndarray
    own: np.ndarray

    @classmethod
    def of(
        cls,
        embeddings: Array,
        labels: Array,
        gallery: Array | None = None,
        gallery_labels: Array | None = None,
        own_items: Array | None = None,
    ) -> "Labelled":
        """Check arrays as ``retrieval_metrics`` takes them; without a gallery every vector searches all others."""
        vectors = as_vectors(embeddings)
        if (gallery is None) != (gallery_labels is None):
            raise ValueError("a gallery needs labels, and labels of a gallery need the gallery")
        if gallery is None or gallery_labels is None:
            (codes,) = encode_labels(labels)
            check_labelled(vectors, codes)
            rows = unit_rows(vectors).numpy().astype(np.float32)
            return cls(rows, codes, rows, codes, np.arange(len(rows)))
        items = as_vectors(gallery, "gallery")
        codes, item_codes = encode_labels(labels, gallery_labels)
        check_labelled(vectors, codes)
        check_labelled(items, item_codes, "gallery vectors")
        own = np.full(len(codes), -1) if own_items is None else np.asarray(own_items)
        return cls(*(unit_rows(vectors).numpy(), codes, unit_rows(items).numpy(), item_codes, own))

    def askers(self) -> np.ndarray:
        """Return the queries (numbers) that have something to find."""
        there = np.bincount(self.gallery_classes, minlength=int(self.query_classes.max()) + 1)[self.query_classes]
        own = self.own >= 0
        own[own] &= self.gallery_classes[self.own[own]] == self.query_classes[own]
        return np.flatnonzero(there - own > 0)


def draw_lists(
    data: Labelled, unknown: float, generator: np.random.Generator, share: float = 1.0, per_class: int | None = None
) -> RankedLists | None:
    """Search once by some queries in a gallery of a share of the classes, with at most so many items of each.

    Of the queries a share ``unknown`` searches without its own class. Returns None if the gallery would be too small.
    """
    asking = data.askers()
    classes = np.unique(data.gallery_classes)
    if share < 1:
        kept = generator.permutation(classes)[: max(2, round(share * len(classes)))]
        asking, classes = asking[np.isin(data.query_classes[asking], kept)], kept
    items = _at_most(np.flatnonzero(np.isin(data.gallery_classes, classes)), data.gallery_classes, per_class, generator)
    asking = _at_most(asking, data.query_classes, _MOST_OF_A_CLASS, generator)
    if len(asking) > MOST_QUERIES:
        asking = np.sort(generator.choice(asking, MOST_QUERIES, replace=False))
    if not len(asking) or len(items) < _SMALLEST:
        return None
    known = generator.random(len(asking)) >= unknown
    scores, labels = search(data, asking, items, known)
    return RankedLists(scores, labels, data.query_classes[asking], known, len(items), len(items) / len(classes))


def search(data: Labelled, asking: np.ndarray, items: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return scores and classes (Q, depth) of the first results; no query finds itself, an unknown one not its class.

    Where there are fewer results, scores are NaN and classes -1.
    """
    gallery, classes = data.gallery[items], data.gallery_classes[items]
    place = np.full(len(data.gallery), -1)
    place[items] = np.arange(len(items))
    depth, block = min(DEPTH, len(items)), max(1, _BLOCK // len(items))
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for start in range(0, len(asking), block):
        some = asking[start : start + block]
        scores = data.queries[some] @ gallery.T
        own = np.where(data.own[some] >= 0, place[data.own[some]], -1)
        scores[np.flatnonzero(own >= 0), own[own >= 0]] = -np.inf
        hidden = ~known[start : start + block]
        scores[hidden] = np.where(classes == data.query_classes[some[hidden]][:, None], -np.inf, scores[hidden])
        best = torch.from_numpy(scores).topk(depth, dim=1)
        values = best.values.numpy()
        there = np.isfinite(values)
        found.append((np.where(there, values, np.nan), np.where(there, classes[best.indices.numpy()], -1)))
    scores, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return scores, labels


def _at_most(rows: np.ndarray, classes: np.ndarray, most: int | None, generator: np.random.Generator) -> np.ndarray:
    """Return the rows, in order, with at most so many of each class, drawn at random."""
    if most is None:
        return rows
    shuffled = generator.permutation(rows)
    order = np.argsort(classes[shuffled], kind="stable")
    ranked = classes[shuffled][order]
    first = np.searchsorted(ranked, ranked, side="left")
    return np.sort(shuffled[order][np.arange(len(ranked)) - first < most])
