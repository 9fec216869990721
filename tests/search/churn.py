"""A writer to be killed: it works through numbered operations, each the same whoever computes it.

Run as a program it makes writers on request, by forking, so that each is ready at once: it reads a folder and a number
to begin with, prints the new process's id, and the writer prints ``begin N kind`` and ``done N`` around each operation.
"""

import faulthandler
import os
import sys
from typing import Any

import numpy as np

DIM = 16
IDS = 300
State = dict[str, tuple[bytes, dict[str, Any]]]


def operation(number: int) -> tuple[str, list[str], np.ndarray]:
    """Return the kind, ids and vectors of an operation."""
    random = np.random.default_rng(number)
    kind = random.choice(["upsert", "delete", "compact", "reopen"], p=[0.55, 0.2, 0.2, 0.05])
    ids = [f"id {i}" for i in random.choice(IDS, random.integers(1, 40), replace=False)]
    vectors = random.normal(size=(len(ids), DIM)).astype(np.float32)
    return str(kind), ids, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def apply(state: State, number: int) -> State:
    """Return the state after an operation."""
    kind, ids, vectors = operation(number)
    state = dict(state)
    if kind == "upsert":
        state.update((one, (v.tobytes(), {"number": number})) for one, v in zip(ids, vectors, strict=True))
    elif kind == "delete":
        for one in ids:
            state.pop(one, None)
    return state


def say(line: str) -> None:
    """Write a line at once: print writes word by word, and a kill may come between."""
    os.write(1, f"{line}\n".encode())


def write(folder: str, number: int) -> None:
    """Work through the operations from a number on, until killed."""
    from tophit.search import Index

    index = Index.open(folder, writable=True)
    while True:
        say(f"begin {number} {operation(number)[0]}")
        index = carry_out(index, folder, number)
        say(f"done {number}")
        number += 1


def carry_out(index: Any, folder: Any, number: int) -> Any:
    """Do an operation on an index, and return the index, which may be opened again."""
    kind, ids, vectors = operation(number)
    if kind == "upsert":
        index.upsert(ids, vectors, [{"number": number}] * len(ids))
    elif kind == "delete":
        index.delete(ids)
    elif kind == "compact":
        index.compact()
    else:
        index.close()
        return type(index).open(folder, writable=True)
    return index


def nursery() -> None:
    """Fork a writer for each line read."""
    from tophit.search.local import local_backend

    faulthandler.enable()
    local_backend.SEAL_AT = 100  # so that segments are made all the time
    for line in sys.stdin:
        folder, number = line.rstrip("\n").rsplit(" ", 1)
        child = os.fork()
        if not child:
            write(folder, int(number))
        say(f"pid {child}")
        say(f"dead {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")


if __name__ == "__main__":
    nursery()
