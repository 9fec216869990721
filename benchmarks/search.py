"""Measure the local index side by side in one run: ``python -m benchmarks.search [PART] [--sets 200k 1M icons]``.

speed: queries a second at recall@10 >= 0.98 against raw FAISS (the same IVF file, probes and re-scoring) and hnswlib,
       in batches of 1000 and one at a time.
filters: recall and time of searches that allow 1% and 10% of the items.
open: seconds to open the index and answer a first query, in a new process.
upserts: items a second, each call durable when it returns.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import faiss
import numpy as np

from benchmarks import side_by_side
from tophit.search import Hit, Index

FAISS = cast("Any", faiss)
SETS = {"200k": (200_000, 128), "1M": (1_000_000, 128), "small": (60_000, 64), "icons": (0, 0)}
QUERIES, SINGLE, K, TARGET = 1000, 200, 10, 0.98


def clustered(count: int, dim: int, noise: float = 1.1) -> tuple[np.ndarray, np.ndarray]:
    """Return unit vectors (count, dim) around count / 200 centres, and queries of the same kind."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((count // 200, dim), dtype=np.float32)
    vectors = centres[random.integers(0, len(centres), count + QUERIES)]
    vectors += noise * random.standard_normal(vectors.shape, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[:count], vectors[count:]


def icon_features() -> tuple[np.ndarray, np.ndarray]:
    """Return the demo set's features of the pretrained network, the last of them as queries."""
    from tophit.data.icons import icon_set
    from tophit.embedding.rows import embed_rows
    from tophit.models import build_embedder

    vectors = embed_rows(build_embedder(), icon_set().rows).vectors
    return np.ascontiguousarray(vectors[:-QUERIES]), np.ascontiguousarray(vectors[-QUERIES:])


def fill(folder: Path, vectors: np.ndarray, batch: int = 10_000, **options: Any) -> Index:
    """Write vectors with metadata ``n`` from 0 to 99, and compact."""
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
    print(f"written in {written:.0f} s, compacted and tuned in {total - written:.0f} s; {_told(index)}", flush=True)
    return index


def _told(index: Index) -> str:
    stats = index.stats()
    effort = stats["segments"][0].get("effort@10", "all")
    told = f"{stats['kind']} with effort {effort}, recall@10 {stats['recall@10']:.3f} told"
    return f"{told}, {stats['bytes'] / 1e6:.0f} MB on disk"


def exact(queries: np.ndarray, vectors: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the true nearest rows (Q, K)."""
    found = faiss.knn(queries, vectors if rows is None else vectors[rows], K, metric=faiss.METRIC_INNER_PRODUCT)[1]
    return found if rows is None else rows[found]


def recall_of_hits(found: list[list[Hit]] | list[list[str]], truth: np.ndarray) -> float:
    names = [[one.id if isinstance(one, Hit) else one for one in hits] for hits in found]
    return recall(np.array(names).astype(np.int64), truth)


def recall(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(found.tolist(), truth.tolist(), strict=True)]))


def raw_faiss(index: Index, vectors: np.ndarray) -> Any:
    """Return a search function on the same FAISS index with the same effort and number of re-scored candidates."""
    (segment,) = cast("Any", index.backend)._state.segments
    if segment.approximate is None:
        flat = faiss.IndexFlatIP(vectors.shape[1])
        flat.add(vectors)  # type: ignore[call-arg]
        return lambda queries: flat.search(queries, K)[1]  # type: ignore[call-arg]
    effort, candidates = segment.approximate._plan(K + 8, 1.0)
    refined = FAISS.IndexRefineFlat(segment.approximate.index, FAISS.swig_ptr(vectors))
    base = segment.approximate._parameters(effort, None)
    parameters = FAISS.IndexRefineSearchParameters(k_factor=candidates / K, base_index_params=base)
    return lambda queries: refined.search(queries, K, params=parameters)[1]


def hnswlib_search(vectors: np.ndarray, queries: np.ndarray, truth: np.ndarray) -> Any:
    """Build hnswlib's index and return a search function with the least effort that reaches the target."""
    import hnswlib

    graph = hnswlib.Index("ip", vectors.shape[1])
    graph.set_num_threads(faiss.omp_get_max_threads())
    graph.init_index(len(vectors), M=16, ef_construction=200)
    start = time.process_time()
    graph.add_items(vectors)
    effort = 10
    while True:
        graph.set_ef(effort)
        if recall(graph.knn_query(queries, K)[0].astype(np.int64), truth) >= TARGET or effort > 4000:
            break
        effort = int(effort * 1.2) + 1
    print(f"hnswlib: built in {time.process_time() - start:.0f} CPU-s, ef {effort}", flush=True)
    return lambda some: graph.knn_query(some, K)[0].astype(np.int64)


def one_by_one(search: Any, queries: np.ndarray) -> Any:
    return lambda: [search(queries[i : i + 1]) for i in range(SINGLE)]


def speed(index: Index, vectors: np.ndarray, queries: np.ndarray, options: argparse.Namespace) -> None:
    truth = exact(queries, vectors)
    contenders: dict[str, Any] = {
        "raw FAISS": raw_faiss(index, vectors),
        "Tophit, ids and scores": lambda some: index.nearest(some, K)[0],
        "Tophit, hits with metadata": lambda some: index.search(some, K),
    }
    if len(vectors) <= options.hnswlib_up_to:
        contenders["hnswlib"] = hnswlib_search(vectors, queries, truth)
    clock = time.process_time if options.cpu else time.perf_counter
    batched = side_by_side({name: lambda s=s: s(queries) for name, s in contenders.items()}, options.rounds, clock)
    single = side_by_side({name: one_by_one(s, queries) for name, s in contenders.items()}, options.rounds, clock)
    print("| | recall@10 | batched, queries/s | of raw FAISS | one at a time, queries/s | of raw FAISS |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, search in contenders.items():
        found = search(queries)
        share = recall(found, truth) if isinstance(found, np.ndarray) else recall_of_hits(found, truth)
        both = f"{QUERIES / batched[name]:.0f} | {batched['raw FAISS'] / batched[name]:.2f}"
        alone = f"{SINGLE / single[name]:.0f} | {single['raw FAISS'] / single[name]:.2f}"
        print(f"| {name} | {share:.3f} | {both} | {alone} |", flush=True)


def filters(index: Index, vectors: np.ndarray, queries: np.ndarray, options: argparse.Namespace) -> None:
    numbers = np.arange(len(vectors)) % 100
    print("| allowed | recall@10 | first query with the filter, ms | one at a time, ms | batched, queries/s |")
    print("| --- | --- | --- | --- | --- |")
    for percent in (1, 10):
        where = {"n": {"lt": percent}}
        allowed = np.flatnonzero(numbers < percent)
        start = time.perf_counter()
        index.search(queries[:1], K, where)
        first = time.perf_counter() - start
        start = time.perf_counter()
        for i in range(20):
            index.search(queries[i : i + 1], K, where)
        alone = (time.perf_counter() - start) / 20
        start = time.perf_counter()
        found = index.search(queries, K, where)
        batched = len(queries) / (time.perf_counter() - start)
        share = recall_of_hits(found, exact(queries, vectors, allowed))
        print(f"| {percent}% | {share:.3f} | {first * 1e3:.1f} | {alone * 1e3:.2f} | {batched:.0f} |", flush=True)


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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("part", nargs="?", choices=["all", "speed", "filters", "open", "upserts"], default="all")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=["200k", "icons"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="count seconds of the processor: for a busy machine")
    parser.add_argument("--hnswlib-up-to", type=int, default=200_000, help="build hnswlib up to so many vectors")
    parser.add_argument("--noise", type=float, default=1.1, help="spread of the clusters; 2.2 makes them overlap")
    parser.add_argument("--folder", type=Path, help="where to put the indexes; a temporary folder without")
    options = parser.parse_args()
    print(f"{faiss.omp_get_max_threads()} threads, FAISS {faiss.__version__}", flush=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for which in options.sets:
            vectors, queries = icon_features() if which == "icons" else clustered(*SETS[which], options.noise)
            print(f"\n## {which}: {len(vectors)} x {vectors.shape[1]}", flush=True)
            if options.part in ("all", "upserts"):
                upserts(Path(name) / f"{which}-upserts", vectors)
            if options.part == "upserts":
                continue
            folder = Path(name) / which
            with fill(folder, vectors, **({"exact_below": 1000} if which == "icons" else {})) as index:
                for part, run in (("speed", speed), ("filters", filters)):
                    if options.part in ("all", part):
                        run(index, vectors, queries, options)
            if options.part in ("all", "open"):
                opening(folder, queries[:1])


if __name__ == "__main__":
    main()
