"""Flip bits in every file of an index: how many ``verify`` finds, and whether the others change anything.

``python -m benchmarks.damage [FLIPS]`` flips one bit at a time, in an index that was closed and in one that a crash
left with its write-ahead log. A flip that verify does not find must be harmless: the index gives the same items and
the same answers to filters. Only bytes that SQLite does not use, in a database that was not closed, are such.
"""

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tophit.errors import TophitError
from tophit.search import Index

DIM, COUNT = 8, 120
FILTERS: list[dict[str, Any]] = [{"shop": "a"}, {"price": {"gte": 40}}, {"sold": True}, {"shop": {"ne": "b"}}]


def make_index(folder: Path, crashed: bool) -> None:
    """Make an index with a segment, an earlier version, deletions and a log; a crashed one was not closed."""
    made = folder.with_name(f"{folder.name}-made") if crashed else folder
    vectors = np.random.default_rng(0).normal(size=(COUNT, DIM))
    ids = [f"id {i}" for i in range(COUNT)]
    metadata = [{"shop": "ab"[i % 2], "price": i / 2, "sold": i % 3 == 0, "size": i} for i in range(COUNT)]
    with Index.create(made, DIM) as index:
        for part in (slice(0, 30), slice(30, 60)):
            index.upsert(ids[part], vectors[part], metadata[part])
            index.compact()
        index.upsert(ids[60:90], vectors[60:90], metadata[60:90])
    with Index.open(made, writable=True) as index:
        index.delete(ids[5:15])
        index.upsert(ids[90:], vectors[90:], metadata[90:])
        if crashed:
            shutil.copytree(made, folder)
    if crashed:
        shutil.rmtree(made)


def answers(folder: Path) -> Any:
    """Return everything that an index gives."""
    with Index.open(folder) as index:
        items = [(item.id, item.vector.tobytes(), item.metadata) for item in index.items()]
        query = np.ones(DIM)
        return items, [[hit.id for hit in index.search(query, k=50, where=where)[0]] for where in FILTERS]


def flips(folder: Path, count: int, seed: int = 0) -> Iterator[tuple[str, int]]:
    """Yield files and bits to flip: every file gets its share, and one more by its size."""
    random = np.random.default_rng(seed)
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    # SQLite makes the first again at each opening, and the second only says who writes.
    paths = [path for path in paths if not path.name.endswith("-shm") and path.name != "lock"]
    sizes = np.array([path.stat().st_size for path in paths], float)
    shares = 0.5 / len(paths) + 0.5 * sizes / sizes.sum()
    for _ in range(count):
        place = random.choice(len(paths), p=shares)
        yield str(paths[place].relative_to(folder)), int(random.integers(8 * int(sizes[place])))


def flip(path: Path, bit: int) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def attack(sound: Path, scratch: Path, count: int, seed: int = 0) -> Counter[tuple[str, str]]:
    """Flip one bit at a time in copies of an index; return how often which kind of file had which outcome.

    The outcomes are "found", "harmless" and "WRONG": not found, and something differs.
    """
    expected = answers(sound)
    outcomes: Counter[tuple[str, str]] = Counter()
    for name, bit in flips(sound, count, seed):
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(sound, scratch)
        flip(scratch / name, bit)
        kind = "".join(Path(name).suffixes) if "-" in Path(name).stem else name
        outcomes[kind, _outcome(scratch, expected)] += 1
    shutil.rmtree(scratch, ignore_errors=True)
    return outcomes


def _outcome(folder: Path, expected: Any) -> str:
    from tophit.search.local.verifying import verify

    if verify(folder):
        return "found"
    try:
        return "harmless" if answers(folder) == expected else "WRONG"
    except TophitError:
        return "WRONG"


def main(count: int) -> None:
    """Attack a closed and a crashed index and print the outcomes."""
    with tempfile.TemporaryDirectory() as temporary:
        for state in ("closed", "crashed"):
            sound = Path(temporary) / state
            make_index(sound, crashed=state == "crashed")
            outcomes = attack(sound, Path(temporary) / "scratch", count)
            total, words = Counter[str](), ("found", "harmless", "WRONG")
            print(f"{state}: {count} flips of one bit")
            for kind in sorted({kind for kind, _ in outcomes}):
                here = {outcome: outcomes[kind, outcome] for outcome in words}
                total.update(here)
                print(f"  {kind:24} " + "  ".join(f"{number:5} {outcome}" for outcome, number in here.items()))
            print(f"  {'all':24} " + "  ".join(f"{total[outcome]:5} {outcome}" for outcome in words))
            if total["WRONG"]:
                raise SystemExit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
