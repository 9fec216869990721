"""Literal, slow definitions of the metrics: one loop an equation, in plain Python floats."""

import itertools
import math
from collections.abc import Sequence

import numpy as np


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def ranking(scores: Sequence[float], own: int = -1) -> list[int]:
    """Items by falling score, the lower index first among equals, without the query's own item."""
    return sorted((j for j in range(len(scores)) if j != own), key=lambda j: (-scores[j], j))


def precision_at(rel: Sequence[int], k: int) -> float:
    return sum(rel[:k]) / k


def recall_at(rel: Sequence[int], k: int) -> float:
    return 1.0 if any(rel[:k]) else 0.0


def average_precision(rel: Sequence[int], total: int) -> float:
    return sum(precision_at(rel, i + 1) for i in range(len(rel)) if rel[i]) / total


def map_at_r(rel: Sequence[int], total: int) -> float:
    return sum(precision_at(rel, i + 1) for i in range(min(total, len(rel))) if rel[i]) / total


def r_precision(rel: Sequence[int], total: int) -> float:
    return sum(rel[:total]) / total


def ndcg_at(rel: Sequence[int], k: int, total: int) -> float:
    gained = sum((2 ** rel[i] - 1) / math.log2(i + 2) for i in range(min(k, len(rel))))
    return gained / sum(1 / math.log2(i + 2) for i in range(min(k, total)))


def query_metrics(
    rel: Sequence[int], recall: Sequence[int], precision: Sequence[int], ndcg: Sequence[int]
) -> dict[str, float]:
    """All metrics of one query from the 0/1 list of its ranking; NaN without a relevant item."""
    total = sum(rel)
    names = [f"recall@{k}" for k in recall] + [f"precision@{k}" for k in precision] + [f"ndcg@{k}" for k in ndcg]
    if not total:
        return dict.fromkeys([*names, "mAP", "MAP@R", "R-precision"], math.nan)
    values = [recall_at(rel, k) for k in recall] + [precision_at(rel, k) for k in precision]
    values += [ndcg_at(rel, k, total) for k in ndcg]
    values += [average_precision(rel, total), map_at_r(rel, total), r_precision(rel, total)]
    return dict(zip([*names, "mAP", "MAP@R", "R-precision"], values, strict=True))


def spread(rows: Sequence[Sequence[float]], labels: Sequence[int]) -> tuple[float, float]:
    classes = sorted(set(labels))
    intra, means = [], []
    for c in classes:
        members = [np.asarray(x) / math.hypot(*x) for x, label in zip(rows, labels, strict=True) if label == c]
        means.append(np.mean(members, axis=0))
        if len(members) > 1:
            intra.append(np.mean([1 - cosine(a, b) for a, b in itertools.permutations(members, 2)]))
    inter = [1 - cosine(a, b) for a, b in itertools.permutations(means, 2)]
    return float(np.mean(intra)), float(np.mean(inter))


def pair_counts(clusters: Sequence[int], classes: Sequence[int]) -> tuple[int, int, int]:
    """True positive, false positive and false negative pairs of samples."""
    tp = fp = fn = 0
    for i, j in itertools.combinations(range(len(clusters)), 2):
        same_cluster, same_class = clusters[i] == clusters[j], classes[i] == classes[j]
        tp += same_cluster and same_class
        fp += same_cluster and not same_class
        fn += same_class and not same_cluster
    return tp, fp, fn
