"""Threads that each work alone: products of one thread each, side by side, and no waiting between them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def single_threaded_workers() -> Iterator[ThreadPoolExecutor]:
    """Yield as many threads as torch has, in each of which torch itself uses one.

    Threads inside one product keep their cores busy for a while after it, which slows down whatever comes between
    products. Whole workers beside each other do not.
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            yield workers
    finally:
        torch.set_num_threads(threads)  # a worker's setting is also what later threads would begin with
