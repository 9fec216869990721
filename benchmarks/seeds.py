"""Tables over seeds: heads on cached features, with the same recipe for every row except for what the row changes."""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tophit.recipe import make_recipe
from tophit.training import train

METRICS = ("recall@1", "MAP@R")
STUDENT_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
Sections = Mapping[str, Mapping[str, Any]]


def train_head(data: str, seed: int, sections: Sections) -> dict[str, Any]:
    """Return the result of one run: 20 epochs on features at 64 pixels, batches of 32 classes x 4 images.

    ``sections`` are sections of the recipe, whose fields override these.
    """
    fields: dict[str, dict[str, Any]] = {
        "data": {"manifest": data},
        "embedder": {"trainable": "head", "size": 64, "crop": 1.0},
        "batches": {"sampler": "balanced", "classes": 32, "per_class": 4},
        "schedule": {"epochs": 20},
        "evaluation": {"every": 5},
    }
    for name, section in sections.items():
        fields[name] = {**fields.get(name, {}), **section}
    with tempfile.TemporaryDirectory() as folder:
        return train(make_recipe({"seed": seed, **fields}), Path(folder) / "run")


def metrics_over_seeds(data: str, seeds: int, sections: Sections, first: int = 0) -> list[dict[str, float]]:
    """Return the test metrics of one run per seed, starting with the seed ``first``."""
    return [train_head(data, seed, sections)["test"] for seed in range(first, first + seeds)]


def print_head(first: str, columns: Sequence[str] = METRICS) -> None:
    """Print the head of a table in Markdown."""
    print(f"| {first} | " + " | ".join(columns) + " |\n| --- |" + " --- |" * len(columns), flush=True)


def print_row(name: str, results: Sequence[Mapping[str, float]], metrics: Sequence[str] = METRICS) -> None:
    """Print a row: the mean over seeds of each metric, in percent, and the half width of its 95% interval."""
    cells = [interval([100 * result[metric] for result in results]) for metric in metrics]
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def print_difference(
    name: str,
    first: Sequence[Mapping[str, float]],
    second: Sequence[Mapping[str, float]],
    metrics: Sequence[str] = METRICS,
) -> None:
    """Print a row: the mean over seeds of second - first, seed by seed, in points, with its 95% interval."""
    cells = [interval([100 * (b[m] - a[m]) for a, b in zip(first, second, strict=True)], "+") for m in metrics]
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def interval(values: Sequence[float], sign: str = "") -> str:
    """Return the mean and the half width of its 95% interval (Student's t)."""
    half = STUDENT_95[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):{sign}.1f} ± {half:.1f}"
