"""How time and memory grow with the number of images, each size in a process of its own.

    python -m benchmarks.growth [TASK ...] [--largest 100000]

Seconds are of one thread's processor time, so that a busy machine changes little. The exponent is the slope of a line
through the logarithms of sizes and seconds, those below 0.2 s left out: 1 is linear, 2 quadratic. Memory is the rise of
the process's peak above what it held before, without the inputs.

embed: pictures of 16 pixels through a small network to Parquet parts. head: one epoch on given features of 64 numbers,
with 1,000 test images. evaluate: all metrics, each item a query. index: vectors added and compacted. search: 1,000
queries, one at a time. report: the whole page of a run with so many test images. compare: the statistics of 8
candidates of 5 seeds with so many queries each.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import peak_rise

DIM = 64
SIZES = (1_000, 10_000, 100_000, 1_000_000)
LARGEST = {"embed": 100_000, "evaluate": 100_000, "report": 10_000}  # larger ones take more than some minutes
LEAST_SECONDS = 0.2
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
WARM_UP = 200  # images of the run before the one that is timed
Work = Callable[[], object]


def vectors_of(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors (count, DIM) around the centres of classes of 10, and their classes."""
    generator = np.random.default_rng(seed)
    labels = np.arange(count) // 10
    rows = generator.standard_normal((len(labels) // 10 + 1, DIM), dtype=np.float32)[labels]
    rows += 0.5 * generator.standard_normal(rows.shape, dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


def embed(count: int, place: Path) -> Work:
    """Embed boxes of 16 pictures into a folder of parts."""
    from PIL import Image

    from tophit.data.manifest import ImageRow
    from tophit.embedding.folder import embed_to_folder
    from tophit.models import build_embedder

    generator, files = np.random.default_rng(0), []
    for number in range(16):
        files.append(place / f"{number}.png")
        Image.fromarray(generator.integers(0, 255, (24, 24, 3), dtype=np.uint8)).save(files[-1])
    rows = []
    for number in range(count):
        left = number // 16 / count  # a box of its own for every row
        rows.append(ImageRow(files[number % 16], str(number % 16), box=(left, 0.0, left + 16, 16.0)))
    embedder = build_embedder("small", "random", dim=DIM, size=16, crop=1.0)
    return lambda: embed_to_folder(embedder, rows, place / "vectors", runtime="torch")


def _feature_file(place: Path, train: int, test: int) -> Path:
    rows, labels = vectors_of(train + test)
    split = np.where(np.arange(train + test) < train, "train", "test")
    np.savez(place / "features.npz", features=rows, labels=labels.astype(str), split=split)
    return place / "features.npz"


def _train(data: Path, out: Path, test: bool) -> object:
    import tophit

    fields = {"schedule": {"epochs": 1}, "evaluation": {"test": test, "before": False}, "embedder": {"dim": DIM}}
    return tophit.train(data, out=out, **fields)  # type: ignore[arg-type]


def head(count: int, place: Path) -> Work:
    """Train a head on given features for one epoch."""
    data = _feature_file(place, count, 1000)
    return lambda: _train(data, place / "run", test=True)


def evaluate(count: int, place: Path) -> Work:
    """Compute all metrics of one set."""
    from tophit.evaluation import retrieval_metrics

    rows, labels = vectors_of(count)
    return lambda: retrieval_metrics(rows, labels)


def fill(place: Path, count: int) -> object:
    """Make an index and add so many items to it."""
    from tophit.search import Index

    index = Index.create(place / "index", dim=DIM, fingerprint="growth")
    for start in range(0, count, 10_000):
        rows, _ = vectors_of(min(10_000, count - start), seed=start)
        names = [f"/images/{start + number}.jpg" for number in range(len(rows))]
        index.upsert(names, rows, [{"path": name} for name in names])
    index.compact()
    return index


def index(count: int, place: Path) -> Work:
    """Fill an index in batches and compact it."""
    return lambda: fill(place, count)


def search(count: int, place: Path) -> Work:
    """Search an index that is open a thousand times, one query at a time."""
    subprocess.run(
        [sys.executable, "-c", f"from benchmarks import growth; growth.fill(growth.Path({str(place)!r}), {count})"],
        check=True,
    )
    from tophit.search import Index

    opened, (queries, _) = Index.open(place / "index"), vectors_of(1000)
    opened.search(queries[:1], 10)
    return lambda: [opened.search(query[None], 10) for query in queries]


def report(count: int, place: Path) -> Work:
    """Write the page of a finished run."""
    import tophit

    _train(_feature_file(place, 1000, count), place / "run", test=True)
    return lambda: tophit.report(place / "run")


def compare(count: int, place: Path) -> Work:
    """Estimate every candidate and judge all pairs."""
    from tophit.comparing.statistics import class_table, estimate
    from tophit.comparing.verdicts import judge_pairs, ranks

    generator, labels = np.random.default_rng(0), np.arange(count) // 10
    values = {f"candidate {n}": [generator.random(count) < 0.5 + n / 50 for _ in range(5)] for n in range(8)}

    def work() -> None:
        tables = {name: class_table(each, labels) for name, each in values.items()}
        for table in tables.values():
            estimate(table)
        ranks(tables, judge_pairs(tables))

    return work


TASKS = {each.__name__: each for each in (embed, head, evaluate, index, search, report, compare)}


def one(task: str, count: int) -> None:
    """Do a task once in this process and print its seconds and MB as JSON."""
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as other:
        TASKS[task](WARM_UP, Path(other))()  # imports what is needed
        work = TASKS[task](count, Path(place))
        taken: list[float] = []

        def timed() -> None:
            start = time.process_time()
            taken.append((work(), time.process_time() - start)[1])

        megabytes = peak_rise(timed)
        print(json.dumps([taken[0], megabytes]))


def exponent(found: dict[int, tuple[float, float]]) -> float | None:
    """Return the slope of the logarithms of seconds over those of sizes; None with fewer than two to fit."""
    points = [(math.log(count), math.log(taken)) for count, (taken, _) in found.items() if taken >= LEAST_SECONDS]
    if len(points) < 2:
        return None
    sizes, seconds = np.asarray(points).T
    return float(np.polyfit(sizes, seconds, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="*", help=f"any of {', '.join(TASKS)}; default: all")
    parser.add_argument("--largest", type=int, default=100_000)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given.task[0], given.one)
        return
    print("| task | " + " | ".join(f"{count:,}" for count in SIZES if count <= given.largest) + " | exponent |")
    print("| --- " * (2 + sum(count <= given.largest for count in SIZES)) + "|")
    for task in given.task or TASKS:
        found = {}
        for count in SIZES:
            if count > min(given.largest, LARGEST.get(task, count)):
                continue
            command = [sys.executable, "-m", "benchmarks.growth", task, "--one", str(count)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | ONE_THREAD)
            found[count] = tuple(json.loads(done.stdout.splitlines()[-1]))
        cells = [
            f"{found[c][0]:.2f} s, {found[c][1]:.0f} MB" if c in found else "" for c in SIZES if c <= given.largest
        ]
        slope = exponent(found)
        print(f"| {task} | {' | '.join(cells)} | {'' if slope is None else f'{slope:.2f}'} |", flush=True)


if __name__ == "__main__":
    main()
