"""Measure the local index side by side in one run: ``python -m benchmarks.search [PART] [--sets 200k 1M icons]``.

speed: queries a second at recall@10 >= 0.98 against FAISS, hnswlib and usearch, in batches of 1000 and one at a time,
       and the share of the best of them. The kind of index is the one that the index itself chose by measuring.
filters: recall and time of searches that allow 1%, 10% and 50% of the items.
deletes: the same after every second item was deleted, before the index is compacted.
open: seconds to open the index and answer a first query, in a new process.
upserts: items a second, each call durable when it returns.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from benchmarks import side_by_side
from benchmarks.search_contenders import contenders, recall_of
from tophit.search import Hit, Index

SETS = {"200k": (200_000, 128, 1.1), "1M": (1_000_000, 128, 1.3), "small": (60_000, 64, 1.1)}
"""Number of vectors, numbers of each, and spread of the clusters: at 1.1 they are clear, at 1.3 they overlap."""
QUERIES, SINGLE, K, TARGET = 1000, 200, 10, 0.98


def clustered(count: int, dim: int, noise: float = 1.1) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors (count, dim) around count / 200 centres, and queries of the same kind."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((count // 200, dim), dtype=np.float32)
    vectors = centres[random.integers(0, len(centres), count + QUERIES)]
    vectors += noise * random.standard_normal(vectors.shape, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[:count], vectors[count:]


def split(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors in random order, some of them as queries."""
    vectors = vectors[np.random.default_rng(0).permutation(len(vectors))].astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors[:-QUERIES]), np.ascontiguousarray(vectors[-QUERIES:])


def icon_features() -> np.ndarray:
    """Return the demo set's features of the pretrained network."""
    from tophit.data.icons import icon_set
    from tophit.embedding.rows import embed_rows
    from tophit.models import build_embedder

    return embed_rows(build_embedder(), icon_set().rows).vectors


def load(which: str, features: Path | None, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors and queries of a set."""
    if which in SETS:
        return clustered(*SETS[which])
    if which == "icons":
        kept = folder / "icons.npy"
        if not kept.exists():
            np.save(kept, icon_features())
        return split(np.load(kept))
    if features is None:
        raise SystemExit("--sets features needs --features FILE.npz with an array 'features'.")
    return split(np.load(features)["features"])


def fill(folder: Path, vectors: np.ndarray, batch: int = 10_000, **options: Any) -> Index:
    """Write vectors with metadata ``n`` from 0 to 99, and compact; or open what was written before."""
    if folder.exists():
        return Index.open(folder, writable=True)
    index = Index.create(folder, vectors.shape[1], recall=TARGET, **options)
    start = time.perf_counter()
    for first in range(0, len(vectors), batch):
        numbers = range(first, min(first + batch, len(vectors)))
        index.upsert(
            [str(i) for i in numbers], vectors[numbers.start : numbers.stop], [{"n": i % 100} for i in numbers]
        )
    written = time.perf_counter() - start
    index.compact()
    total = time.perf_counter() - start
    print(f"written in {written:.0f} s, chosen, built and tuned in {total - written:.0f} s", flush=True)
    return index


def tell(index: Index) -> None:
    """Print the kind of index and what was measured when it was chosen."""
    stats = index.stats()
    print(f"{stats['kind']}, recall@10 {stats['recall@10']:.3f} told, {stats['bytes'] / 1e6:.0f} MB on disk")
    for one in stats["measured"]:
        print(f"  {one}", flush=True)


def exact(queries: np.ndarray, vectors: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the true nearest rows (Q, K)."""
    found = faiss.knn(queries, vectors if rows is None else vectors[rows], K, metric=faiss.METRIC_INNER_PRODUCT)[1]
    return found if rows is None else rows[found]


def numbers_of(found: list[list[Hit]] | list[list[str]]) -> np.ndarray:
    names = [[one.id if isinstance(one, Hit) else one for one in hits] for hits in found]
    return np.array(names).astype(np.int64)


def one_by_one(search: Any, queries: np.ndarray) -> Any:
    return lambda: [search(queries[i : i + 1]) for i in range(SINGLE)]


def speed(index: Index, vectors: np.ndarray, queries: np.ndarray, options: argparse.Namespace, folder: Path) -> None:
    truth = exact(queries, vectors)
    threads = faiss.omp_get_max_threads()
    others = contenders(vectors, queries, truth, TARGET, folder, options.only)
    known = {one.name: one for one in others}
    ours = {
        "index.nearest: ids and scores": lambda some: index.nearest(some, K)[0],
        "index.search: hits with metadata": lambda some: index.search(some, K),
    }
    searches: dict[str, Any] = {**{name: one.search for name, one in known.items()}, **ours}
    recalls = {name: one.recall for name, one in known.items()}
    recalls |= {name: recall_of(numbers_of(search(queries)), truth) for name, search in ours.items()}
    clock = time.process_time if options.cpu else time.perf_counter
    faiss.omp_set_num_threads(1)
    batched = side_by_side({name: lambda s=s: s(queries) for name, s in searches.items()}, options.rounds, clock)
    single = side_by_side({name: one_by_one(s, queries) for name, s in searches.items()}, options.rounds, clock)
    faiss.omp_set_num_threads(threads)
    best = [min(times[name] for name in known) for times in (batched, single)]
    print("| | recall@10 | batches of 1000 | of the best | one at a time | of the best |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in searches:
        both = f"{QUERIES / batched[name]:,.0f} | {best[0] / batched[name]:.2f}"
        alone = f"{SINGLE / single[name]:,.0f} | {best[1] / single[name]:.2f}"
        told = f"{name} ({known[name].settings})" if name in known else name
        print(f"| {told} | {recalls[name]:.3f} | {both} | {alone} |", flush=True)


def filters(index: Index, vectors: np.ndarray, queries: np.ndarray) -> None:
    numbers = np.arange(len(vectors)) % 100
    print("| allowed | recall@10 | first query with the filter, ms | one at a time, ms | batched, queries/s |")
    print("| --- | --- | --- | --- | --- |")
    for percent in (1, 10, 50):
        allowed = np.flatnonzero(numbers < percent)
        _row(f"{percent}%", index, vectors, queries, allowed, {"n": {"lt": percent}})


def deletes(folder: Path, vectors: np.ndarray, queries: np.ndarray) -> None:
    """Delete every second item of a copy of the index and search before it is compacted."""
    with tempfile.TemporaryDirectory() as name:
        copy = shutil.copytree(folder, Path(name) / "index")
        with Index.open(copy, writable=True) as index:
            for first in range(0, len(vectors), 100_000):
                index.delete([str(i) for i in range(first, min(first + 100_000, len(vectors))) if i % 2])
            print("| | recall@10 | first query, ms | one at a time, ms | batched, queries/s |")
            print("| --- | --- | --- | --- | --- |")
            _row("half deleted", index, vectors, queries, np.arange(0, len(vectors), 2), None)


def _row(
    name: str, index: Index, vectors: np.ndarray, queries: np.ndarray, allowed: np.ndarray, where: dict | None
) -> None:
    times = []
    for i in range(21):
        start = time.perf_counter()
        index.search(queries[i : i + 1], K, where)
        times.append(time.perf_counter() - start)
    start = time.perf_counter()
    found = index.search(queries, K, where)
    batched = len(queries) / (time.perf_counter() - start)
    share = recall_of(numbers_of(found), exact(queries, vectors, allowed))
    alone = float(np.median(times[1:]))
    print(f"| {name} | {share:.3f} | {times[0] * 1e3:.1f} | {alone * 1e3:.2f} | {batched:,.0f} |", flush=True)


OPENING = """
import sys, time, numpy as np
from tophit.search import Index
import tophit.search.local.local_backend
query = np.load(sys.argv[2])
start = time.perf_counter()
index = Index.open(sys.argv[1])
opened = time.perf_counter() - start
index.search(query, 10)
answered = time.perf_counter() - start
print(f"{len(index)} items: opened in {opened * 1e3:.0f} ms, first answer after {answered * 1e3:.0f} ms")
"""


def opening(folder: Path, query: np.ndarray) -> None:
    np.save(folder.parent / "query.npy", query)
    subprocess.run([sys.executable, "-c", OPENING, str(folder), str(folder.parent / "query.npy")], check=True)


def upserts(folder: Path, vectors: np.ndarray) -> None:
    """Write into a new index in calls of several sizes; every call is on the disk when it returns."""
    print("| items a call | items/s | calls/s |")
    print("| --- | --- | --- |")
    for batch in (1, 100, 1000):
        with Index.create(folder / str(batch), vectors.shape[1]) as index:
            calls, start = 0, time.perf_counter()
            while time.perf_counter() - start < 3 and (calls + 1) * batch <= len(vectors):
                chosen = range(calls * batch, (calls + 1) * batch)
                index.upsert([str(i) for i in chosen], vectors[chosen.start : chosen.stop], [{"n": i} for i in chosen])
                calls += 1
            passed = time.perf_counter() - start
        print(f"| {batch} | {calls * batch / passed:.0f} | {calls / passed:.0f} |", flush=True)


def main() -> None:
    parts = ["all", "build", "speed", "filters", "deletes", "open", "upserts"]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("part", nargs="?", choices=parts, default="all")
    parser.add_argument("--sets", nargs="+", choices=[*SETS, "icons", "features"], default=["200k", "icons"])
    parser.add_argument("--features", type=Path, help="an NPZ file with an array 'features' (N, dim)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="count seconds of the processor: for a busy machine")
    parser.add_argument("--only", nargs="+", help="contenders whose names hold one of these words")
    parser.add_argument(
        "--folder", type=Path, help="where to keep the indexes for the next run; without, nothing is kept"
    )
    parser.add_argument("--memory", help="the index's budget of memory: 2GB")
    parser.add_argument("--build", help="the index's budget of time: 5min")
    options = parser.parse_args()
    print(f"{faiss.omp_get_max_threads()} threads, FAISS {faiss.__version__}", flush=True)
    budget = {name: getattr(options, name) for name in ("memory", "build") if getattr(options, name)}
    with tempfile.TemporaryDirectory() as name:
        for which in options.sets:
            place = (options.folder or Path(name)) / which
            place.mkdir(parents=True, exist_ok=True)
            vectors, queries = load(which, options.features, place)
            print(f"\n## {which}: {len(vectors)} x {vectors.shape[1]}", flush=True)
            if options.part in ("all", "upserts"):
                upserts(place / "upserts", vectors)
            if options.part == "upserts":
                continue
            with fill(place / "index", vectors, **({} if which in SETS else {"exact_below": 1000}), **budget) as index:
                tell(index)
                if options.part in ("all", "speed"):
                    speed(index, vectors, queries, options, place)
                if options.part in ("all", "filters"):
                    filters(index, vectors, queries)
            if options.part in ("all", "deletes"):
                deletes(place / "index", vectors, queries)
            if options.part in ("all", "open"):
                opening(place / "index", queries[:1])


if __name__ == "__main__":
    main()
