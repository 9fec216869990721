"""Measure vectors from any library: metrics with intervals, and a paired test between two models.

The arrays may come from ``numpy.load("vectors.npz")``; here they are drawn at random.
"""

import numpy as np

from tophit.evaluation import paired_difference, retrieval_metrics

random = np.random.default_rng(0)
labels = np.repeat(np.arange(40), 10)
centres = random.normal(size=(40, 32))[labels]
np.savez(
    "vectors.npz", ours=centres + random.normal(size=(400, 32)), theirs=centres + 1.3 * random.normal(size=(400, 32))
)

vectors = np.load("vectors.npz")
ours, theirs = (retrieval_metrics(vectors[name], labels, confidence=0.95) for name in ("ours", "theirs"))
for name in ("recall@1", "precision@5", "MAP@R"):
    low, high = ours.intervals[name]
    difference = paired_difference(ours.per_query[name], theirs.per_query[name], labels)  # over classes
    print(f"{name}: {100 * ours[name]:.1f} ({100 * low:.1f} to {100 * high:.1f}),", end=" ")
    print(f"{100 * difference.mean:+.1f} points, p = {difference.p_permutation:.3f}")
