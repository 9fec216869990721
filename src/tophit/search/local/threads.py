"""How many threads FAISS uses."""

from collections.abc import Iterator
from contextlib import contextmanager

import faiss


@contextmanager
def one_thread() -> Iterator[None]:
    """Let FAISS use one thread in a block."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)
