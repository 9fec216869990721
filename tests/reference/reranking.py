"""Slow and literal: re-ranking as its papers write it, with sets and loops."""

import math

import numpy as np


def alpha_expansion(query: np.ndarray, nearest: list[np.ndarray], alpha: float) -> np.ndarray:
    total = query.astype(float).copy()
    for item in nearest:
        similarity = float(query @ item)
        if similarity > 0:
            total += similarity**alpha * item
    return total / math.sqrt(float(total @ total))


def k_reciprocal(query: np.ndarray, candidates: np.ndarray, k1: int, k2: int, share: float) -> list[float]:
    points = [query, *candidates]
    n = len(points)

    def distance(i: int, j: int) -> float:
        return max(0.0, 1 - float(points[i] @ points[j]))

    ranking = [[i, *sorted((j for j in range(n) if j != i), key=lambda j, i=i: (distance(i, j), j))] for i in range(n)]

    def reciprocal(i: int, k: int) -> set[int]:
        return {j for j in ranking[i][: k + 1] if i in ranking[j][: k + 1]}

    encoded: list[dict[int, float]] = []
    for i in range(n):
        members = set(reciprocal(i, k1))
        for j in reciprocal(i, k1):
            half = reciprocal(j, round(k1 / 2))
            if 3 * len(half & reciprocal(i, k1)) >= 2 * len(half):
                members |= half
        weights = {j: math.exp(-distance(i, j)) for j in members}
        total = sum(weights.values())
        encoded.append({j: weight / total for j, weight in weights.items()})
    averaged: list[dict[int, float]] = []
    for i in range(n):
        near = ranking[i][:k2]
        averaged.append({j: sum(encoded[m].get(j, 0.0) for m in near) / len(near) for j in range(n)})
    answer = []
    for i in range(1, n):
        smaller = sum(min(averaged[0][j], averaged[i][j]) for j in range(n))
        larger = sum(max(averaged[0][j], averaged[i][j]) for j in range(n))
        answer.append((1 - share) * (1 - smaller / larger) + share * distance(0, i))
    return answer
