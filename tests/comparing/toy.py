"""A small set for comparisons."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def toy_data(tmp_path: Path) -> str:
    """Return a small feature file: a third of the coordinates tells the class."""
    generator = np.random.default_rng(0)
    classes, each, channels = 20, 10, 24
    labels = np.repeat(np.arange(classes), each)
    features = generator.normal(size=(len(labels), channels))
    features[:, : channels // 3] += 1.5 * generator.normal(size=(classes, channels // 3))[labels]
    np.savez(tmp_path / "toy.npz", features=features.astype(np.float32), labels=labels)
    return str(tmp_path / "toy.npz")
