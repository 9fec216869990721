"""The nearest neighbours of every image of a set, and how near each is to its own class; within a memory budget."""

from dataclasses import dataclass

import numpy as np
import torch

from tophit.evaluation.retrieval import search_task
from tophit.evaluation.similarity import ScoreStrips


@dataclass(frozen=True)
class Neighbours:
    """For each of N images its k nearest others, best first: row numbers (N, k) and cosine similarities (N, k)."""

    rows: np.ndarray
    similarity: np.ndarray


def nearest_neighbours(vectors: np.ndarray, k: int, memory_budget: int) -> Neighbours:
    """Return the k nearest others (fewer in a smaller set) of each vector (N, d)."""
    task = search_task(vectors, np.zeros(len(vectors), np.int64))
    k = min(k, len(vectors) - 1)
    strips = ScoreStrips(task, memory_budget)
    rows = np.empty((len(vectors), k), np.int64)
    similarity = np.empty((len(vectors), k), np.float32)
    for strip in strips.strips:
        best = torch.full((strip[1] - strip[0], 0), 0.0)
        where = torch.zeros((strip[1] - strip[0], 0), dtype=torch.int64)
        for span in strips.spans:
            scores = torch.from_numpy(strips.scores(strip, span))
            values, places = scores.topk(min(k, scores.shape[1]), dim=1)
            best, where = _merged(best, where, values, places + span[0], k)
        rows[slice(*strip)], similarity[slice(*strip)] = where.numpy(), best.numpy()
    return Neighbours(rows, similarity)


def _merged(
    best: torch.Tensor, where: torch.Tensor, values: torch.Tensor, places: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k best of two lists, of equals the lower place first."""
    values, places = torch.cat([best, values.to(torch.float32)], dim=1), torch.cat([where, places], dim=1)
    order = places.argsort(dim=1)
    values, places = values.gather(1, order), places.gather(1, order)
    order = values.argsort(dim=1, descending=True, stable=True)[:, :k]
    return values.gather(1, order), places.gather(1, order)


def own_similarity(vectors: np.ndarray, classes: np.ndarray, count: int, memory_budget: int) -> np.ndarray:
    """Return each image's mean similarity (N,) to the ``count`` nearest others of its class; NaN if it is alone.

    A class of n images has at most n - 1 others. ``classes`` (N,) are integers from 0.
    """
    found = np.full(len(vectors), np.nan, np.float32)
    order = np.argsort(classes, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(classes[order])) + 1):
        others = min(count, len(members) - 1)
        if others == 0:
            continue
        own = vectors[members]
        step = max(1, memory_budget // (4 * own.itemsize * len(members)))
        for start in range(0, len(members), step):
            scores = own[start : start + step] @ own.T
            inside = np.arange(len(scores))
            scores[inside, start + inside] = -np.inf
            best = -np.partition(-scores, others - 1, axis=1)[:, :others]
            found[members[start : start + step]] = best.mean(axis=1)
    return found
