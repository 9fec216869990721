"""What the settings of the map save, and how well it keeps neighbours together, beside openTSNE's own settings.

    python -m benchmarks.map                                  # 10,000 generated vectors
    python -m benchmarks.map --features features.npz --rows 10000

Of every image's 10 nearest others by the vectors, the share that is among its 10 nearest on the map; and the share of
these that are of its class. Seconds are processor time.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from openTSNE import TSNE
from rich.console import Console
from rich.table import Table

from benchmarks.growth import vectors_of
from tophit.figures.maps import coordinates

NEAR = 10


def features_of(path: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors (count, d) and labels of some rows of a feature file, without the mean of all."""
    with np.load(path) as file:
        features, labels = file["features"].astype(np.float32), file["labels"]
    chosen = np.random.default_rng(0).permutation(len(features))[:count]
    rows = (features - features.mean(axis=0))[chosen]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels[chosen]


def nearest(points: np.ndarray) -> np.ndarray:
    """Return the rows of the NEAR nearest others (n, NEAR) of points (n, d)."""
    found = []
    lengths = (points**2).sum(axis=1)
    for start in range(0, len(points), 1000):
        squares = lengths - 2 * points[start : start + 1000] @ points.T
        squares[np.arange(len(squares)), start + np.arange(len(squares))] = np.inf
        found.append(np.argpartition(squares, NEAR, axis=1)[:, :NEAR])
    return np.concatenate(found)


def by_default(vectors: np.ndarray) -> np.ndarray:
    """Return points (n, 2) by openTSNE's own settings, from the same start."""
    centred = vectors - vectors.mean(axis=0)
    start = centred @ np.linalg.svd(centred.T @ centred)[2][:2].T
    model = TSNE(perplexity=min(30, (len(vectors) - 1) // 3), metric="cosine", random_state=0, n_jobs=1)
    return np.asarray(model.fit(vectors, initialization=start / start[:, 0].std() * 1e-4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=Path, help="an npz file with features and labels")
    given = parser.parse_args()
    vectors, labels = vectors_of(given.rows) if given.features is None else features_of(given.features, given.rows)
    near = nearest(vectors)
    table = Table("map", "processor s", "neighbours kept", "of the same class")
    contenders: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "Tophit": lambda rows: coordinates(rows)[0],
        "openTSNE's settings": by_default,
    }
    for name, make in contenders.items():
        begun = time.process_time()
        points = make(vectors)
        seconds = time.process_time() - begun
        shown = nearest(points.astype(np.float64))
        kept = np.mean([len(np.intersect1d(one, other)) / NEAR for one, other in zip(near, shown, strict=True)])
        table.add_row(name, f"{seconds:.1f}", f"{kept:.3f}", f"{(labels[shown] == labels[:, None]).mean():.3f}")
    Console().print(
        f"{len(vectors):,} vectors; by the vectors {(labels[near] == labels[:, None]).mean():.3f} are right:"
    )
    Console().print(table)


if __name__ == "__main__":
    main()
