"""What the local index is compared with: FAISS's kinds of index, hnswlib and usearch, each with its usual settings.

Each is built once, with all threads, and kept in a folder; then it searches with one thread and the least effort that
reaches the recall on the very queries that are timed.
"""

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import faiss
import numpy as np

from tophit.search.local.threads import one_thread

FAISS = cast("Any", faiss)
EFFORTS = sorted({round(1.12**step) for step in range(75)})
_TIMINGS = 5  # of each variant of a contender; the fastest one is compared with, by its least time
Search = Callable[[np.ndarray], np.ndarray]


class Contender(NamedTuple):
    """A search function, what it was tuned to, and the recall that this reaches."""

    name: str
    search: Search
    settings: str
    recall: float


def recall_of(found: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of the true neighbours (Q, k) that were found."""
    pairs = zip(found.tolist(), truth.tolist(), strict=True)
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in pairs]))


def contenders(
    vectors: np.ndarray, queries: np.ndarray, truth: np.ndarray, target: float, folder: Path, only: list[str] | None
) -> Iterator[Contender]:
    """Build and tune each; what does not reach the target is told and left out."""
    k = truth.shape[1]
    exact = FAISS.IndexFlatIP(vectors.shape[1])
    exact.add(vectors)
    for name, variants in _all(vectors, exact, k, folder).items():
        if only and not any(one in name for one in only):
            continue
        best: tuple[float, Contender] | None = None
        for settings, searches, efforts in variants():
            effort = _least_effort(searches, efforts, queries, truth, target)
            search = searches(effort)
            reached = recall_of(search(queries), truth)
            seconds = min(_seconds(search, queries) for _ in range(_TIMINGS))
            print(f"  {name}, {settings}: effort {effort}, recall {reached:.3f}, {seconds:.3f} s", flush=True)
            if reached >= target and (best is None or seconds < best[0]):
                best = seconds, Contender(name, search, f"{settings}, effort {effort}", reached)
        if best is not None:
            yield best[1]


def _seconds(search: Search, queries: np.ndarray) -> float:
    start = time.process_time()
    search(queries)
    return time.process_time() - start


def _least_effort(
    searches: Callable[[int], Search], efforts: list[int], queries: np.ndarray, truth: np.ndarray, target: float
) -> int:
    low, high = 0, len(efforts) - 1
    while low < high:
        middle = (low + high) // 2
        if recall_of(searches(efforts[middle])(queries), truth) >= target:
            high = middle
        else:
            low = middle + 1
    return efforts[low]


def _all(vectors: np.ndarray, exact: Any, k: int, folder: Path) -> dict[str, Callable[[], Iterator[Any]]]:
    count, dim = vectors.shape
    lists = max(1, min(2 ** round(math.log2(3 * math.sqrt(count))), count // 39))
    codes = dim // 2
    return {
        "FAISS exact": lambda: iter([("all compared", lambda _: lambda some: exact.search(some, k)[1], [1])]),
        "FAISS IVF-SQ8": lambda: _faiss_lists(f"IVF{lists},SQ8", (1.8, 4), vectors, exact, k, folder),
        "FAISS fast-scan PQ": lambda: _faiss_lists(f"IVF{lists},PQ{codes}x4fsr", (3, 6, 12), vectors, exact, k, folder),
        "FAISS HNSW": lambda: _faiss_graphs(vectors, exact, k, folder),
        "hnswlib": lambda: _hnswlib(vectors, k, folder),
        "usearch": lambda: _usearch(vectors, k, folder),
    }


def _refined(index: Any, exact: Any, k: int, factor: float, parameters: Any) -> Search:
    refined = FAISS.IndexRefine(index, exact)
    how = FAISS.IndexRefineSearchParameters(k_factor=factor, base_index_params=parameters)
    return lambda some: refined.search(some, k, params=how)[1]


def _faiss(spec: str, vectors: np.ndarray, folder: Path, prepare: Callable[[Any], None]) -> Any:
    """Build an index by FAISS's own factory, or read it."""
    path = folder / f"{spec}.faiss"
    if path.exists():
        return faiss.read_index(str(path))
    start = time.perf_counter()
    index: Any = faiss.index_factory(vectors.shape[1], spec, faiss.METRIC_INNER_PRODUCT)
    prepare(index)
    if not index.is_trained:
        with (
            one_thread()
        ):  # hundreds of small trainings: more threads wait for each other, on a busy machine for minutes
            index.train(vectors[: max(40 * getattr(index, "nlist", 1), 20_000)])
    index.add(vectors)
    faiss.write_index(index, str(path))
    print(f"  FAISS {spec} built in {time.perf_counter() - start:.0f} s", flush=True)
    return index


def _faiss_lists(
    spec: str, factors: tuple[float, ...], vectors: np.ndarray, exact: Any, k: int, folder: Path
) -> Iterator[Any]:
    def prepare(index: Any) -> None:
        index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = 40, 1

    index = _faiss(spec, vectors, folder, prepare)
    for factor in factors:

        def searches(effort: int, factor: float = factor) -> Search:
            return _refined(index, exact, k, factor, FAISS.SearchParametersIVF(nprobe=effort))

        yield f"{spec}, {factor:g} candidates", searches, [one for one in EFFORTS if one <= index.nlist]


def _faiss_graphs(vectors: np.ndarray, exact: Any, k: int, folder: Path) -> Iterator[Any]:
    for spec, breadth in (
        (("HNSW16,SQ8", 100), ("HNSW32,Flat", 100)) if len(vectors) < 500_000 else (("HNSW16,SQ8", 100),)
    ):

        def prepare(index: Any, breadth: int = breadth) -> None:
            index.hnsw.efConstruction = breadth

        index = _faiss(spec, vectors, folder, prepare)

        for factor in (1.2, 1.8):

            def searches(effort: int, index: Any = index, factor: float = factor) -> Search:
                return _refined(index, exact, k, factor, FAISS.SearchParametersHNSW(efSearch=effort))

            yield f"{spec}, {factor:g} candidates", searches, [one for one in EFFORTS if one >= factor * k]


def _hnswlib(vectors: np.ndarray, k: int, folder: Path) -> Iterator[Any]:
    import hnswlib

    graph, path = hnswlib.Index("ip", vectors.shape[1]), folder / "hnswlib.bin"
    if path.exists():
        graph.load_index(str(path), len(vectors))
    else:
        start = time.perf_counter()
        graph.init_index(len(vectors), M=16, ef_construction=200)
        graph.add_items(vectors)
        graph.save_index(str(path))
        print(f"  hnswlib built in {time.perf_counter() - start:.0f} s", flush=True)
    graph.set_num_threads(1)

    def searches(effort: int) -> Search:
        def search(some: np.ndarray) -> np.ndarray:
            graph.set_ef(effort)
            return graph.knn_query(some, k)[0].astype(np.int64)

        return search

    yield "M 16, ef_construction 200", searches, [one for one in EFFORTS if one >= k]


def _usearch(vectors: np.ndarray, k: int, folder: Path) -> Iterator[Any]:
    from usearch.index import Index

    for numbers in ("f16",) if len(vectors) >= 500_000 else ("f32", "f16", "i8"):
        graph: Any = Index(ndim=vectors.shape[1], metric="ip", dtype=numbers, connectivity=16, expansion_add=128)
        path = folder / f"usearch-{numbers}.bin"
        if path.exists():
            graph.load(str(path))
        else:
            start = time.perf_counter()
            graph.add(np.arange(len(vectors)), vectors)
            graph.save(str(path))
            print(f"  usearch {numbers} built in {time.perf_counter() - start:.0f} s", flush=True)

        def searches(effort: int, graph: Any = graph) -> Search:
            def search(some: np.ndarray) -> np.ndarray:
                graph.expansion_search = effort
                return graph.search(some, k, threads=1).keys.reshape(-1, k).astype(np.int64)

            return search

        yield f"{numbers}, connectivity 16", searches, [one for one in EFFORTS if one >= k]
