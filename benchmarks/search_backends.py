"""The three backends side by side in one run: loading, size, searching, filtering.

    python -m benchmarks.search_backends --count 20000 --dim 128

Clustered unit vectors; recall@10 against the exact search. The servers run on this machine and share its cores.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from tests.search.servers import MilvusServer, PostgresServer

from tophit.search import Index

BATCH = 1000


def clustered(count: int, dim: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(max(1, count // 100), dim))
    rows = centres[random.integers(len(centres), size=count)] + 0.8 * random.normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@contextmanager
def backends(folder: Path, dim: int) -> Iterator[dict[str, Callable[[], Index]]]:
    (folder / "milvus").mkdir()
    (folder / "postgres").mkdir()
    milvus, postgres = MilvusServer(folder / "milvus"), PostgresServer(folder / "postgres")
    try:
        yield {
            "local": lambda: Index.create(folder / "local", dim),
            "milvus FLAT": lambda: Index.create(milvus.address, dim),
            "pgvector exact": lambda: Index.create(postgres.address, dim, table="exact"),
            "pgvector hnsw": lambda: Index.create(postgres.address, dim, table="graph", index="hnsw"),
        }
    finally:
        milvus.stop()
        postgres.stop()


def measure(index: Index, vectors: np.ndarray, queries: np.ndarray) -> dict[str, float]:
    start = time.perf_counter()
    for first in range(0, len(vectors), BATCH):
        ids = [f"{i:09}" for i in range(first, min(first + BATCH, len(vectors)))]
        index.upsert(ids, vectors[first : first + BATCH], [{"part": int(name) % 100} for name in ids])
    index.compact()
    loading = time.perf_counter() - start
    found: dict[str, float] = {"vectors/s": len(vectors) / loading, "MB": index.stats().get("bytes", np.nan) / 1e6}
    for title, where, chosen in (
        ("", None, np.arange(len(vectors))),
        (", 1% filter", {"part": 7}, np.arange(7, len(vectors), 100)),
    ):
        index.search(queries[:1], 10, where)
        times, shared = [], []
        nearest = chosen[np.argsort(-(queries @ vectors[chosen].T), axis=1)[:, :10]]
        for query, best in zip(queries, nearest, strict=True):
            start = time.perf_counter()
            hits = index.search(query, 10, where)[0]
            times.append(time.perf_counter() - start)
            shared.append(len({int(hit.id) for hit in hits} & set(best.tolist())) / len(best))
        found |= {f"ms{title}": 1e3 * float(np.median(times)), f"recall{title}": float(np.mean(shared))}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--only", nargs="+", help="backends to measure, by their names in the table")
    arguments = parser.parse_args()
    vectors = clustered(arguments.count, arguments.dim)
    queries = vectors[:: max(1, arguments.count // arguments.queries)][: arguments.queries]
    queries = queries + 0.02 * np.random.default_rng(1).normal(size=queries.shape).astype(np.float32)
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, backends(Path(name), arguments.dim) as made:
        for backend, create in made.items():
            if arguments.only and backend not in arguments.only:
                continue
            with create() as index:
                results[backend] = measure(index, vectors, queries)
    columns = list(next(iter(results.values())))
    table = Table("backend", *columns, title=f"{arguments.count:,} x {arguments.dim}, k = 10, one query at a time")
    for backend, values in results.items():
        table.add_row(backend, *(f"{values[column]:,.3g}" for column in columns))
    Console().print(table)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
