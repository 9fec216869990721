"""Which images lie in another class, written out literally from the definition in tophit.reporting.label_problems."""

import numpy as np


def lying_in_another_class(vectors: np.ndarray, labels: list[str]) -> dict[int, tuple[str, float]]:
    """Return the reported images with the other class and how clear that is."""
    count = len(labels)
    own = {}
    for i in range(count):
        similar = sorted(float(vectors[i] @ vectors[j]) for j in range(count) if j != i and labels[j] == labels[i])
        if similar:
            best = similar[-2:]
            own[i] = sum(best) / len(best)
    usual = {name: np.quantile([own[i] for i in own if labels[i] == name], 0.25) for name in {labels[i] for i in own}}
    found = {}
    for i in own:
        others = sorted((j for j in range(count) if j != i), key=lambda j: -float(vectors[i] @ vectors[j]))[:10]
        means = {}
        for name in {labels[j] for j in others} - {labels[i]}:
            there = [float(vectors[i] @ vectors[j]) for j in others if labels[j] == name]
            if len(there) >= 2:
                means[name] = (there[0] + there[1]) / 2
        if not means:
            continue
        name = max(means, key=lambda each: means[each])
        if means[name] > own[i] and means[name] >= usual[name] and own[i] <= usual[labels[i]]:
            share = sum(labels[j] == name for j in others) / len(others)
            found[i] = (name, (means[name] - own[i]) / max(1e-6, 1 - own[i]) * share)
    return found
