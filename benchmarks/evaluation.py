"""Measure evaluation side by side in one run: ``python -m benchmarks.evaluation [PART]``; without a part, all.

retrieval: all metrics of some queries against the bare chunked matrix product of the same tiles and threads.
one-set: the same, with every item as a query against all others, once over the whole set.
library: time and memory against pytorch-metric-learning's AccuracyCalculator, its retrieval metrics and with NMI.
clustering: k-means against scikit-learn's.
coverage: how often intervals contain the true value.
graded: metrics of a hierarchy of 12 branches against those of its leaves alone, each item a query of all others.
"""

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import torch

from benchmarks import side_by_side
from tophit.evaluation import Relevance, bootstrap_intervals, clustering_metrics, nmi, retrieval_metrics
from tophit.evaluation.kmeans import cluster, inertia
from tophit.evaluation.scores import COLUMN_TILE, ROW_TILE

ALL_METRICS = {"recall_at": (1, 10, 100, 1000), "precision_at": (1, 5, 10), "ndcg_at": (10, 100)}
SHAPES = {  # rows, dimensions, classes, noise; SOP is Stanford Online Products' test set
    "SOP": (60_502, 512, 11_316, 2.2),
    "200k": (200_000, 128, 37_407, 1.3),  # as many images per class as SOP
    "200k, large classes": (200_000, 128, 11_316, 1.5),
    "200k, a poor model": (200_000, 128, 11_316, 2.2),
}


def synthetic_set(rows: int, dim: int, classes: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors (rows, dim) around class centres and their labels; every class has at least one image.

    The noise of each shape above gives a recall@1 of about 0.75 to 0.85, as trained models have; 0.08 for the poor one.
    """
    generator = np.random.default_rng(0)
    labels = np.concatenate([np.arange(classes), generator.integers(0, classes, rows - classes)])
    generator.shuffle(labels)
    centres = generator.standard_normal((classes, dim), dtype=np.float32)
    vectors = centres[labels] + noise * generator.standard_normal((rows, dim), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the elapsed seconds and the CPU seconds of all processors together."""
    start, worked = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - worked


def bare_product(queries: torch.Tensor, items: torch.Tensor) -> None:
    """Multiply strip by strip and tile by tile, as the metrics do, and do nothing with the result."""
    buffer = torch.empty(ROW_TILE, len(items))
    for row in range(0, len(queries), ROW_TILE):
        strip = queries[row : row + ROW_TILE]
        for column in range(0, len(items), COLUMN_TILE):
            tile = items[column : column + COLUMN_TILE]
            torch.mm(strip, tile.T, out=buffer[: len(strip), column : column + len(tile)])


def retrieval(arguments: argparse.Namespace) -> None:
    print("set | gallery | queries | product s | all metrics s | ratio (median; least to most) | of processor time")
    for name, (rows, dim, classes, noise) in SHAPES.items():
        vectors, labels = synthetic_set(rows, dim, classes, noise)
        count = min(arguments.queries or rows, rows)
        tensor, own = torch.from_numpy(vectors), np.arange(count)

        def product(tensor: torch.Tensor = tensor, count: int = count) -> None:
            bare_product(tensor[:count], tensor)

        def metrics(vectors: np.ndarray = vectors, labels: np.ndarray = labels, own: np.ndarray = own) -> None:
            part = slice(len(own))
            retrieval_metrics(vectors[part], labels[part], vectors, labels, own_items=own, **ALL_METRICS)

        bare_product(tensor[:ROW_TILE], tensor)
        pairs = [(seconds(product), seconds(metrics)) for _ in range(arguments.repeats)]
        ratios = sorted(ours[0] / bare[0] for bare, ours in pairs)
        worked = statistics.median(ours[1] / bare[1] for bare, ours in pairs)
        bare, ours = (statistics.median(passed for passed, _ in column) for column in zip(*pairs, strict=True))
        print(
            f"{name} | {rows} x {dim}, {classes} classes | {count} | {bare:.1f} | {ours:.1f} | "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {worked:.2f}",
            flush=True,
        )


def one_set(arguments: argparse.Namespace) -> None:
    print("set | product s | all metrics s | ratio | of processor time")
    for name, shape in SHAPES.items():
        vectors, labels = synthetic_set(*shape)
        tensor = torch.from_numpy(vectors)
        bare = seconds(lambda tensor=tensor: bare_product(tensor, tensor))
        ours = seconds(lambda vectors=vectors, labels=labels: retrieval_metrics(vectors, labels, **ALL_METRICS))
        print(f"{name} | {bare[0]:.1f} | {ours[0]:.1f} | {ours[0] / bare[0]:.2f} | {ours[1] / bare[1]:.2f}", flush=True)


class PeakMemory:
    """The most memory this process holds while the block runs, beyond what it held at the start."""

    def __enter__(self) -> "PeakMemory":
        self.start = self.most = _resident()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.thread.join()
        self.megabytes = (self.most - self.start) / 1e6

    def _watch(self) -> None:
        while not self.done.wait(0.01):
            self.most = max(self.most, _resident())


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def library_side(which: str, shape: str, clusters: bool) -> None:
    """Run one library in this process and print its time, memory and results."""
    vectors, labels = synthetic_set(*SHAPES[shape])
    if which == "pml":
        from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

        names = ("precision_at_1", "r_precision", "mean_average_precision_at_r", *(("NMI",) if clusters else ()))
        calculator = AccuracyCalculator(include=names, k="max_bin_count")
        rows, classes = torch.from_numpy(vectors), torch.from_numpy(labels)
        with PeakMemory() as memory:
            start = time.perf_counter()
            found = calculator.get_accuracy(rows, classes)
            passed = time.perf_counter() - start
        values = [found[name] for name in names]
    else:
        with PeakMemory() as memory:
            start = time.perf_counter()
            ours = retrieval_metrics(vectors, labels, **ALL_METRICS)
            found = clustering_metrics(vectors, labels) if clusters else {}
            passed = time.perf_counter() - start
        values = [ours[name] for name in ("precision@1", "R-precision", "MAP@R")]
        values += [found["NMI"]] if clusters else []
    print(f"{passed:.1f} {memory.megabytes:.0f} {' '.join(f'{value:.5f}' for value in values)}")


def library(arguments: argparse.Namespace) -> None:
    print("who | seconds | MB beyond the inputs | precision@1, R-precision, MAP@R, NMI")
    for which, clusters in (("ours", []), ("pml", []), ("ours", ["--nmi"]), ("pml", ["--nmi"])):
        command = [sys.executable, "-m", "benchmarks.evaluation", "library-side", "--which", which, *clusters]
        done = subprocess.run([*command, "--shape", arguments.shape], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{which} | failed: {(done.stderr.strip().splitlines() or ['killed'])[-1]}")
            continue
        took, memory, *values = done.stdout.split()
        print(f"{which} | {took} | {memory} | {', '.join(values)}", flush=True)


def clustering(arguments: argparse.Namespace) -> None:
    rows, dim, classes, noise = SHAPES["SOP"]
    share = arguments.share
    vectors, labels = synthetic_set(round(rows * share), dim, round(classes * share), noise)
    clusters = len(np.unique(labels))
    print(f"{len(vectors)} x {dim} into {clusters} clusters\nwho | seconds | NMI | inertia")
    made: list[np.ndarray] = []
    our_seconds, worked = seconds(lambda: made.append(cluster(torch.from_numpy(vectors), clusters)))
    (ours,) = made
    print(
        f"ours | {our_seconds:.1f} | {nmi(ours, labels):.4f} | {inertia(vectors, ours):.1f} | "
        f"{worked:.1f} s of processor time",
        flush=True,
    )
    limit = 10 + arguments.patience * our_seconds  # a new process needs some seconds to start
    fresh = get_context("spawn")
    for init in ("random", "k-means++"):
        # In its own process, so that it can be stopped: its default initialisation takes hours at full size.
        result = fresh.Queue()
        other = fresh.Process(target=_scikit_learn_side, args=(vectors, clusters, init, result))
        other.start()
        try:
            passed, iterations, found = result.get(timeout=limit)
        except Empty:
            print(f"scikit-learn, {init} | stopped after {limit:.0f}, {arguments.patience:.0f} times ours", flush=True)
            continue
        finally:
            other.terminate()
            other.join()
        print(
            f"scikit-learn, {init} | {passed:.1f} | {nmi(found, labels):.4f} | {inertia(vectors, found):.1f} | "
            f"{passed / our_seconds:.1f} times ours, {iterations} iterations",
            flush=True,
        )


def _scikit_learn_side(vectors: np.ndarray, clusters: int, init: str, result: Any) -> None:
    from sklearn.cluster import KMeans

    start = time.perf_counter()
    found = KMeans(clusters, init=init, n_init=1, random_state=0).fit(vectors)  # type: ignore[arg-type]
    result.put((time.perf_counter() - start, found.n_iter_, np.asarray(found.labels_, np.int64)))


def coverage(arguments: argparse.Namespace) -> None:
    """Simulate test sets whose true mean is 2/3 and print how often the 95% interval contains it."""
    generator = np.random.default_rng(0)
    simulations, inside = 2000, {"classes": 0, "queries": 0}
    for _ in range(simulations):
        codes = np.repeat(np.arange(60), generator.integers(2, 12, 60))
        hits = generator.random(len(codes)) < generator.beta(2, 1, 60)[codes]
        for over in inside:
            low, high = bootstrap_intervals({"hit": hits}, codes, 0.95, over, draws=1000)["hit"]  # type: ignore[arg-type]
            inside[over] += low <= 2 / 3 <= high
    for over, count in inside.items():
        print(f"95% interval over {over}: contains the truth in {100 * count / simulations:.1f}% of {simulations} sets")


def graded(arguments: argparse.Namespace) -> None:
    """Print the time of graded metrics over that of the others, on sets like Stanford Online Products."""
    generator = np.random.default_rng(0)
    for count in (12_000, 24_000):
        leaves = np.arange(count) // 5
        branches = leaves % 12
        centres = (
            0.4 * generator.normal(size=(12, 512))[branches] + 0.6 * generator.normal(size=(count // 5, 512))[leaves]
        )
        vectors = (centres + generator.normal(size=(count, 512))).astype(np.float32)
        relevance = Relevance.of_paths(list(zip(branches.tolist(), leaves.tolist(), strict=True)))
        names = ["H-AP", "ASI", "graded-ndcg@10", "level1-recall@1"]
        found = side_by_side(
            {
                "leaves": partial(retrieval_metrics, vectors, leaves),
                "levels": partial(retrieval_metrics, vectors, leaves, relevance=relevance, metrics=names),
            },
            2,
        )
        times = found["levels"] / found["leaves"]
        print(
            f"graded, {count:,} x 512: {found['leaves']:.2f} s, {found['levels']:.2f} s, {times:.2f} times", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluation", description=__doc__)
    parser.add_argument(
        "part",
        nargs="?",
        choices=["all", "retrieval", "one-set", "library", "clustering", "coverage", "graded", "library-side"],
    )
    parser.add_argument("--queries", type=int, default=4800, help="retrieval: only this many queries; 0 for all")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--shape", default="SOP", choices=list(SHAPES), help="library: which set")
    parser.add_argument("--share", type=float, default=1.0, help="clustering: the share of SOP's rows and classes")
    parser.add_argument(
        "--patience", type=float, default=6, help="clustering: stop scikit-learn after this many times our time"
    )
    parser.add_argument("--nmi", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--which", choices=["ours", "pml"], default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part == "library-side":
        library_side(arguments.which, arguments.shape, arguments.nmi)
        return
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}")
    for name, part in (
        ("retrieval", retrieval),
        ("one-set", one_set),
        ("library", library),
        ("clustering", clustering),
        ("coverage", coverage),
        ("graded", graded),
    ):
        if arguments.part in (None, "all", name):
            part(arguments)


if __name__ == "__main__":
    main()
