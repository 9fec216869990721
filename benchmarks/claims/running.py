"""Run the cells that are missing, one run at a time; what is interrupted continues at its last checkpoint."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.claims.cells import RESULTS, Cell, untrained_of
from benchmarks.claims.hypotheses import BASELINE
from benchmarks.claims.rounds import ROUNDS, Round
from benchmarks.claims.sets import SETS
from tophit.comparing import Plan, Store
from tophit.comparing.jobs import Job, do_job
from tophit.comparing.plan import slug
from tophit.comparing.tuning import best_trial, read_trials, slots_of
from tophit.comparing.untrained import measure_untrained
from tophit.progress import View


@dataclass(frozen=True)
class Piece:
    """What is done at once: the search of a seed, or its measured run."""

    cell: Cell
    kind: str  # search, seed
    seed: int

    @property
    def is_done(self) -> bool:
        """Whether its file is there."""
        found = self.cell.search if self.kind == "search" else self.cell.run
        return found(self.seed) is not None

    @property
    def runs(self) -> int:
        """How many runs it has."""
        return self.cell.trials if self.kind == "search" else 1

    def __str__(self) -> str:
        return f"{self.cell.set}, {self.cell.candidate}, {self.kind} {self.seed}"


def pieces(rounds: tuple[Round, ...] = ROUNDS, results: Path = RESULTS) -> Iterator[tuple[Round, Piece]]:
    """Yield all pieces of the plan in their order, each once: of each seed all searches, then all measured runs."""
    seen = set()
    for each in rounds:
        for name, seed in each.places():
            cells = list(each.cells(name, results))
            for piece in (Piece(cell, kind, seed) for kind in ("search", "seed") for cell in cells):
                if piece not in seen:
                    seen.add(piece)
                    yield each, piece


def set_up_process(out: Path) -> None:
    """Prepare this process for runs: few threads, and a cache of their own. Only for a process of its own."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    os.environ.setdefault("TOPHIT_CACHE", str((out / "cache").absolute()))


def run(data: Path, out: Path, hours: float, sets: tuple[str, ...] = tuple(SETS), results: Path = RESULTS) -> None:
    """Do missing pieces in their order until the hours are over or none is left."""
    end = time.monotonic() + 3600 * hours
    for name in sets:
        if not SETS[name].clean and (data / SETS[name].source).exists() and untrained_of(name, results) is None:
            keep_untrained(name, data, out, results)
    for _, piece in pieces(results=results):
        if time.monotonic() > end:
            return
        if piece.cell.set in sets and not piece.is_done and (data / SETS[piece.cell.set].source).exists():
            began = time.process_time()
            if do_piece(piece, data, out):
                print(f"{time.strftime('%H:%M:%S')} {piece}: {time.process_time() - began:.0f} s", flush=True)


def keep_untrained(name: str, data: Path, out: Path, results: Path = RESULTS) -> None:
    """Measure the backbone of a set as it is before training, on the test classes."""
    cell = Cell(name, BASELINE, results)
    plan = cell.plan(SETS[name].prepare(data / SETS[name].source, (out / "data" / name).absolute()), 0)
    store = Store(out / "untrained" / name)
    with store.lock(BASELINE, "kept") as mine:
        if mine:  # else another process is at it
            measure_untrained(plan, store, View())
            cell.keep_untrained(store)


def do_piece(piece: Piece, data: Path, out: Path) -> bool:
    """Do a piece and keep its result; return False if another process is at it, or at the search that it needs."""
    cell, seed = piece.cell, piece.seed
    found = SETS[cell.set]
    if not (cell.is_ready(seed) if piece.kind == "search" else cell.is_found(seed)):
        return False
    place = found.prepare(data / found.source, (out / "data" / cell.set).absolute())
    store = Store(out / "runs" / cell.set / f"{slug(cell.candidate)}-{cell.digest}-{seed}")
    with store.lock(cell.candidate, "kept") as mine:
        if not mine:
            return False
        plan = cell.plan(place, seed)
        store.begin(plan)
        if piece.kind == "search":
            cell.keep_search(seed, _search(cell, plan, store))
            return True
        _bring_trials(cell, seed, plan, store)
        job = Job(cell.candidate, "seed", seed)
        if not job.is_done(store):
            do_job(job, plan, store, "")
        cell.keep_run(seed, store)
        return True


def _bring_trials(cell: Cell, seed: int, plan: Plan, store: Store) -> None:
    """Write the trials that a search of another machine or an earlier session has kept, if they are not there."""
    trials = cell.search(seed) or []
    for slot in range(slots_of(plan.candidates[cell.candidate], plan.budget)):
        if not store.trial_path(cell.candidate, slot).is_file():
            trial = trials[slot] if slot < len(trials) else {"settings": {}, "value": None, "state": "left out"}
            store.write_json(store.trial_path(cell.candidate, slot), trial)


def _search(cell: Cell, plan: Plan, store: Store) -> list[dict[str, Any]]:
    """Do the trials of a search that are missing, and return all of them.

    One by one: first every rate with the first value, which is the paper's, then the other values at the best rate.
    """
    name = cell.candidate
    slots = list(range(slots_of(plan.candidates[name], plan.budget)))
    if not SETS[cell.set].one_by_one or cell.base:
        return _do_trials(name, slots, plan, store)
    values = SETS[cell.set].values
    trials = _do_trials(name, slots[::values], plan, store)
    best = trials.index(best_trial(trials) or trials[0])
    trials += _do_trials(name, slots[best * values + 1 : (best + 1) * values], plan, store)
    return trials


def _do_trials(name: str, slots: list[int], plan: Plan, store: Store) -> list[dict[str, Any]]:
    jobs = [Job(name, "trial", slot) for slot in slots]
    for job in jobs:
        if not job.is_done(store):
            do_job(job, plan, store, "")
    return read_trials([store.trial_path(name, job.number) for job in jobs])
