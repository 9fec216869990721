"""A writer is killed at random moments: nothing acknowledged is lost, nothing else appears."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.search.churn import DIM, State, apply

from tophit.search import Index

CHURN = Path(__file__).with_name("churn.py")


def read_all(folder: Path) -> State:
    """Scan the whole index: every item once, every vector unit length, found by a search for itself."""
    with Index.open(folder) as index:
        assert index.verify() == []
        items = list(index.items())
        assert len(items) == len(index) == len({item.id for item in items})
        for item in items:
            assert np.linalg.norm(item.vector) == pytest.approx(1, abs=1e-5)
        for item in items[::17]:
            assert index.search(item.vector, 1, {"number": item.metadata["number"]})[0][0].id == item.id
        return {item.id: (item.vector.tobytes(), item.metadata) for item in items}


def kill_often(folder: Path, kills: int) -> Counter[str]:
    """Kill writers at seeded random moments and check the index after each; return what they were doing."""
    Index.create(folder, DIM, exact_below=150).close()
    random = np.random.default_rng(0)
    state: State = {}
    number, doing = 1, Counter[str]()
    nursery = subprocess.Popen(
        [sys.executable, str(CHURN)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    try:
        for _ in range(kills):
            print(folder, number, file=nursery.stdin, flush=True)
            lines: list[str] = []
            while {"pid", "done"} - {line.split()[0] for line in lines}:
                lines.append(nursery.stdout.readline())
                assert lines[-1].split()[0] != "dead", f"the writer ended by itself: {lines}"
            pid = int(next(line for line in lines if line.startswith("pid")).split()[1])
            timer = threading.Timer(random.uniform(0, 0.3), os.kill, (pid, signal.SIGKILL))
            timer.start()
            while not (line := nursery.stdout.readline()).startswith("dead"):
                lines.append(line)
            timer.join()
            assert line == f"dead {-signal.SIGKILL}\n", f"the writer ended by itself: {line}"
            number, state, kind = settle(folder, state, lines)
            doing[kind] += 1
    finally:
        nursery.stdin.close()
        nursery.wait()
        nursery.stdout.close()
    return doing


def settle(folder: Path, state: State, lines: list[str]) -> tuple[int, State, str]:
    """Check that the index holds all acknowledged operations, and the one in flight wholly or not at all."""
    words = [line.split() for line in lines if line.endswith("\n")]
    done = [int(word[1]) for word in words if word[0] == "done"]
    for number in done:
        state = apply(state, number)
    begun, kind = next((int(word[1]), word[2]) for word in reversed(words) if word[0] == "begin" and len(word) == 3)
    found = read_all(folder)
    in_flight = begun not in done
    # What comes out of a killed process may lack the last lines only if they were not written: begin comes first.
    if found == state:
        return done[-1] + 1, state, kind if in_flight else "nothing"
    after = apply(state, done[-1] + 1)
    assert found == after, difference(found, state, after)
    return done[-1] + 2, after, kind


def difference(found: State, before: State, after: State) -> str:
    missing = [one for one in before if one in after and one not in found]
    phantom = [one for one in found if one not in before and one not in after]
    changed = [one for one in found if found[one] not in (before.get(one), after.get(one))]
    return f"missing {missing[:5]}, phantom {phantom[:5]}, changed {changed[:5]}"


def test_killed_ten_times_nothing_is_lost(tmp_path: Path) -> None:
    assert sum(kill_often(tmp_path, 10).values()) == 10


@pytest.mark.slow
def test_killed_two_hundred_times_nothing_is_lost(tmp_path: Path) -> None:
    doing = kill_often(tmp_path, 200)
    assert doing["compact"] >= 20
    assert doing["upsert"] >= 10
    print(dict(doing))
