"""Measure a large local index: ``python -m benchmarks.search_scale --count 10000000 --memory 1GB``.

Prints how long writing and compaction take, the memory and the disk, recall@10, and the time of a query: just after
opening in a new process, when everything comes from the disk, and later. The vectors are made in pieces.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np

from benchmarks import peak_rise
from benchmarks.search import tell
from benchmarks.search_contenders import recall_of
from tophit.search import Index

DIM, PIECE, QUERIES, K = 128, 50_000, 200, 10


def pieces(count: int, noise: float) -> Iterator[tuple[int, np.ndarray]]:
    """Iterate over the vectors: the number of the first, and unit vectors (PIECE, DIM) around count / 200 centres."""
    centres = np.random.default_rng(0).standard_normal((count // 200, DIM), dtype=np.float32)
    for first in range(0, count, PIECE):
        random = np.random.default_rng(1 + first)
        vectors = centres[random.integers(0, len(centres), min(PIECE, count - first))]
        vectors += noise * random.standard_normal(vectors.shape, dtype=np.float32)
        yield first, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def truth_of(queries: np.ndarray, count: int, noise: float) -> np.ndarray:
    """Return the true nearest rows (Q, K), piece by piece."""
    heap = faiss.ResultHeap(len(queries), K, keep_max=True)
    for first, vectors in pieces(count, noise):
        scores, rows = faiss.knn(queries, vectors, K, metric=faiss.METRIC_INNER_PRODUCT)
        heap.add_result(scores, rows + first)
    heap.finalize()
    return heap.I


def write(folder: Path, options: argparse.Namespace) -> None:
    start = time.perf_counter()
    with Index.create(folder, DIM, memory=options.memory, build=options.build) as index:
        for first, vectors in pieces(options.count, options.noise):
            numbers = range(first, first + len(vectors))
            index.upsert([str(i) for i in numbers], vectors, [{"n": i % 100} for i in numbers])
            if first // PIECE % 20 == 19:
                print(f"  {numbers.stop:,} written after {time.perf_counter() - start:.0f} s", flush=True)
        print(f"written in {time.perf_counter() - start:.0f} s", flush=True)


def compact(folder: Path) -> None:
    with Index.open(folder, writable=True) as index:
        start = time.perf_counter()
        rise = peak_rise(index.compact)
        seconds = time.perf_counter() - start
        print(f"chosen, built and tuned in {seconds:.0f} s; memory rose by {rise:,.0f} MiB at most", flush=True)
        tell(index)


def search(folder: Path, options: argparse.Namespace) -> None:
    """Search in this process: one at a time and in a batch; recall of both."""
    _, queries = next(pieces(options.count, options.noise))
    random = np.random.default_rng(7)
    queries = queries[:QUERIES] + options.noise * 0.3 * random.standard_normal((QUERIES, DIM), dtype=np.float32) / 8
    queries = np.ascontiguousarray(queries / np.linalg.norm(queries, axis=1, keepdims=True), np.float32)
    truth = truth_of(queries, options.count, options.noise)
    for path in folder.iterdir():  # let the system forget what it has of the files
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    with Index.open(folder) as index:
        opened = time.perf_counter() - start
        for name in ("from the disk", "again"):
            times = []
            for query in queries:
                start = time.perf_counter()
                index.search(query[None], K)
                times.append(time.perf_counter() - start)
            median, worst = np.percentile(times, [50, 99]) * 1e3
            print(f"one at a time, {name}: median {median:.2f} ms, 99% below {worst:.2f} ms", flush=True)
        start = time.perf_counter()
        found = index.nearest(queries, K)[0]
        batched = len(queries) / (time.perf_counter() - start)
        share = recall_of(np.array(found).astype(np.int64), truth)
        own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
        print(f"opened in {opened:.1f} s; recall@10 {share:.3f}; {batched:,.0f} queries/s in a batch", flush=True)
        print(f"memory of its own, files not counted: {int(own.split()[1]) / 1024:,.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_scale", description=__doc__)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--build", default="10min")
    parser.add_argument("--noise", type=float, default=1.1)
    parser.add_argument("--folder", type=Path, help="keep the index here; an existing one is only searched")
    parser.add_argument("--compact", action="store_true", help="compact an existing one before it is searched")
    parser.add_argument("--search-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name) / "index"
        if options.search_only:
            search(folder, options)
            return
        is_new = not folder.exists()
        if is_new:
            write(folder, options)
        if is_new or options.compact:
            compact(folder)
        more = ["--search-only", "--folder", str(folder)]
        subprocess.run([sys.executable, "-m", "benchmarks.search_scale", *sys.argv[1:], *more], check=True)


if __name__ == "__main__":
    main()
