"""What HTTP adds to a search, side by side with the engine alone, and a long load with writes.

    python -m benchmarks.serve                                  # the local engine: three minutes
    python -m benchmarks.serve --backend pgvector --count 5000  # or milvus: an engine that is a server itself
    python -m benchmarks.serve --rounds 0 --minutes 10          # the load test

16 clients search by id. Those of the engine are threads that call it in this process; those of HTTP are connections
from this process to a server of one process and to one of two. Each round measures all of them one after the other, at
a steady rate (``--rate`` requests a second in all) and as fast as they get answers. What is printed is the median of
the rounds. At full speed the median of the times tells how many requests wait for the processors, not what HTTP costs.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import faiss
import torch
from rich.console import Console
from rich.table import Table
from tests.search.servers import MilvusServer, PostgresServer

from benchmarks.serve.load import image_queries, load
from benchmarks.serve.side_by_side import Measured, seconds_to_follow, side_by_side
from benchmarks.serve.target import Server, make_index
from tophit.search.catalogue import open_catalogue
from tophit.search.versions import IndexOptions

CONSOLE = Console()
WRITES = 40


@contextmanager
def backend_options(name: str, folder: Path) -> Iterator[IndexOptions | None]:
    """Yield how an index is made in a backend, whose server runs meanwhile if it needs one."""
    if name == "local":
        yield None
        return
    (folder / name).mkdir()
    server = MilvusServer(folder / name) if name == "milvus" else PostgresServer(folder / name)
    try:
        yield IndexOptions(name, server.address, kind=None if name == "milvus" else "hnsw")
    finally:
        server.stop()


def compare(folder: Path, ids: list[str], arguments: argparse.Namespace) -> None:
    """Print the engine and HTTP side by side."""
    servers = {"HTTP": Server(folder), "HTTP, --workers 2": Server(folder, workers=2)}
    try:
        with open_catalogue(folder / "index") as catalogue:
            given = (arguments.rounds, arguments.seconds, arguments.rate)
            found = side_by_side(catalogue, servers, ids, *given)
        alone, together = asyncio.run(image_queries(servers["HTTP"], folder, 64))
    finally:
        codes = [server.stop() for server in servers.values()]
    title = f"{arguments.backend}, {arguments.count:,} x {arguments.dim}, k = 10, 16 clients"
    table = Table("search by id", "median ms", "p99 ms", "requests/s", "of the engine's speed", title=title)
    for paces in ("steady", "full speed"):
        base = found["engine alone", paces]
        for way in ("engine alone", *servers):
            rounds = found[way, paces]
            row = Measured.middle(rounds)
            ratio = statistics.median(one.speed / other.speed for one, other in zip(rounds, base, strict=True))
            table.add_row(f"{way}, {paces}", f"{row.median:.2f}", f"{row.p99:.1f}", f"{row.speed:,.0f}", f"{ratio:.2f}")
    CONSOLE.print(table)
    for way in servers:
        pairs = zip(found[way, "steady"], found["engine alone", "steady"], strict=True)
        added = statistics.median(one.median - other.median for one, other in pairs)
        CONSOLE.print(f"{way} adds {added:.2f} ms at the median at {arguments.rate:g} requests a second.")
    CONSOLE.print(f"Images a forward pass: {alone:.1f} one after the other, {together:.1f} with 16 at a time.")
    CONSOLE.print(f"Exit codes of the servers: {codes}")


def follow(folder: Path, dim: int) -> None:
    """Print how soon one process shows what another one wrote."""
    server = Server(folder, workers=2, writable=True)
    try:
        seconds = asyncio.run(seconds_to_follow(server, dim, WRITES))
    finally:
        server.stop()
    CONSOLE.print(
        f"Both processes show a write {1e3 * statistics.median(seconds):.1f} ms after its answer at the median of "
        f"{WRITES}, {1e3 * max(seconds):.1f} ms at most."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("local", "milvus", "pgvector"), default="local")
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement")
    parser.add_argument("--rate", type=float, default=80, help="requests a second of all clients together")
    parser.add_argument("--minutes", type=float, default=0, help="of the load test")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the servers; here they have started already
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.chmod(folder, 0o755)  # under root, PostgreSQL is another user
        with backend_options(arguments.backend, folder) as options:
            ids = make_index(folder, arguments.count, arguments.dim, options)
            if arguments.rounds:
                compare(folder, ids, arguments)
                follow(folder, arguments.dim)
            if arguments.minutes:
                server = Server(folder, writable=True)
                try:
                    CONSOLE.print_json(json.dumps(load(server, folder, ids, arguments.dim, arguments.minutes)))
                finally:
                    CONSOLE.print(f"Exit code of the server: {server.stop()}")


if __name__ == "__main__":
    main()
