"""How many planted label errors are found, and what finding them takes in memory and time.

    python -m benchmarks.label_problems             # wrong labels planted into the test classes of the demo's icons
    python -m benchmarks.label_problems --large     # 60,000 vectors of 512 dimensions: peak memory and seconds

Each repetition gives 20 images drawn at random from the test classes the label of another class, drawn at random. The
embedder has never seen these classes.
"""

import argparse
import dataclasses
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.seeds import interval
from tophit.data.manifest import ImageRow
from tophit.embedding.rows import embed_rows
from tophit.models.embedder import load
from tophit.recipe import read_recipe
from tophit.reporting.label_problems import NEARER, find_label_problems
from tophit.training import train
from tophit.training.run import data_of_run

FIRST = (20, 40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", help="a run on the icons that was trained already; else the recipe icons is trained")
    parser.add_argument("--planted", type=int, default=20, help="wrong labels")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--large", action="store_true", help="measure memory and time at 60,000 x 512 instead")
    parser.add_argument("--images", type=int, default=60_000, help="for --large")
    arguments = parser.parse_args()
    if arguments.large:
        measure_large(arguments.images)
    elif arguments.run:
        print_table(arguments.run, arguments.planted, arguments.repetitions)
    else:
        with tempfile.TemporaryDirectory() as folder:
            train(read_recipe("icons"), Path(folder) / "run")
            print_table(str(Path(folder) / "run"), arguments.planted, arguments.repetitions)


def print_table(run: str, planted: int, repetitions: int) -> None:
    """Print how many of the planted errors are among the first reported images that lie in another class."""
    rows = list(data_of_run(run, "icons").where("test").rows)
    embedded = embed_rows(load(run), rows)
    rows = [rows[i] for i in embedded.rows]
    before = {problem.image.path for problem in find_label_problems(embedded.vectors, rows) if problem.kind == NEARER}
    results = [_find_planted(embedded.vectors, rows, before, planted, seed) for seed in range(repetitions)]
    print(
        f"{len(rows)} images of {len({row.label for row in rows})} classes; "
        f"{len(before)} lie in another class before planting"
    )
    print("| reported first | planted | reported before planting too | neither | precision | recall |")
    print("| --- |" + " --- |" * 5)
    for place, first in enumerate([*FIRST, None]):
        found, known, listed = zip(*(result[place] for result in results), strict=True)
        neither = [c - a - b for a, b, c in zip(found, known, listed, strict=True)]
        precision = [100 * a / max(1, b) for a, b in zip(found, listed, strict=True)]
        recall = [100 * a / planted for a in found]
        name = str(first) if first else f"all ({np.mean(listed):.0f})"
        cells = [interval(each) for each in (found, known, neither)]
        print(
            f"| {name} | " + " | ".join([*cells, f"{interval(precision)}%", f"{interval(recall)}%"]) + " |", flush=True
        )


def _find_planted(
    vectors: np.ndarray, rows: list[ImageRow], before: set[Path], planted: int, seed: int
) -> list[tuple[int, int, int]]:
    """Return for the first 20, the first 40 and all: how many were planted, how many reported ``before`` too, how many.

    A planted image that was reported before planting counts as planted.
    """
    generator = np.random.default_rng(seed)
    names = sorted({row.label for row in rows})
    spoilt = list(rows)
    wrong = generator.choice(len(rows), planted, replace=False)
    for i in wrong:
        label = str(generator.choice([name for name in names if name != rows[i].label]))
        spoilt[i] = dataclasses.replace(rows[i], label=label)
    planted_rows = {id(spoilt[i]) for i in wrong}
    found = [problem for problem in find_label_problems(vectors, spoilt) if problem.kind == NEARER]
    hits = [id(problem.image) in planted_rows for problem in found]
    known = [problem.image.path in before and not hit for problem, hit in zip(found, hits, strict=True)]
    return [(sum(hits[:first]), sum(known[:first]), len(hits[:first])) for first in (*FIRST, None)]


def measure_large(images: int, dim: int = 512, classes: int = 11_316) -> None:
    """Print the peak memory beyond the vectors and the time, for as many classes as Stanford Online Products tests."""
    generator = np.random.default_rng(0)
    labels = np.arange(images) % min(classes, images // 2)
    vectors = generator.standard_normal((int(labels.max()) + 1, dim), np.float32)[labels]
    vectors += 0.7 * generator.standard_normal(vectors.shape, np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = [ImageRow(Path(f"{label}/{number}.jpg"), str(label)) for number, label in enumerate(labels)]
    small = find_label_problems(vectors[:2000], rows[:2000])  # libraries are loaded before the measurement
    held = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    start = time.perf_counter()
    found = find_label_problems(vectors, rows)
    seconds = time.perf_counter() - start
    beyond = 2**10 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
    print(
        f"{images} x {dim} ({vectors.nbytes / 2**20:.0f} MB): {beyond / 2**20:.0f} MB beyond the inputs, "
        f"{seconds:.0f} s, {len(found)} problems ({len(small)} in the first 2,000)"
    )


if __name__ == "__main__":
    main()
