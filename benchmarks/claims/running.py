"""Run the cells that are missing, one run at a time; what is interrupted continues at its last checkpoint."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks.claims.cells import RESULTS, Cell
from benchmarks.claims.rounds import ROUNDS, Round
from benchmarks.claims.sets import SETS
from tophit.comparing import Store
from tophit.comparing.jobs import Job, do_job
from tophit.comparing.plan import slug
from tophit.comparing.tuning import slots_of


@dataclass(frozen=True)
class Piece:
    """What is done at once: the search of a cell, or one of its measured runs."""

    cell: Cell
    seed: int | None  # None: the search

    @property
    def is_done(self) -> bool:
        """Whether its file is there."""
        return (self.cell.search() if self.seed is None else self.cell.run(self.seed)) is not None

    def seconds(self) -> float:
        """Return about how long it takes: what others of the set took, or what was measured once."""
        found = SETS[self.cell.set]
        return found.seconds * (found.trials if self.seed is None else 1.0)

    def __str__(self) -> str:
        what = "search" if self.seed is None else f"seed {self.seed}"
        return f"{self.cell.set}, {self.cell.candidate}, {what}"


def pieces(rounds: tuple[Round, ...] = ROUNDS, results: Path = RESULTS) -> Iterator[tuple[Round, Piece]]:
    """Yield all pieces of the plan in their order, each once: of a round's set the searches, then seed by seed."""
    seen = set()
    for each in rounds:
        for name, seed in product(each.sets, (None, *range(each.seeds))):
            for cell in each.cells(name, results):
                piece = Piece(cell, seed)
                if piece not in seen:
                    seen.add(piece)
                    yield each, piece


def run(data: Path, out: Path, hours: float, sets: tuple[str, ...] = tuple(SETS), results: Path = RESULTS) -> None:
    """Do missing pieces in their order until the hours are over or none is left."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    os.environ.setdefault("TOPHIT_CACHE", str((out / "cache").absolute()))
    os.environ["TOPHIT_ONNX"] = "0"  # an export for every small net that is measured once would cost more than it saves
    end = time.monotonic() + 3600 * hours
    for _, piece in pieces(results=results):
        if time.monotonic() > end:
            return
        if piece.cell.set in sets and not piece.is_done and (data / SETS[piece.cell.set].source).exists():
            began = time.process_time()
            if do_piece(piece, data, out):
                print(f"{time.strftime('%H:%M:%S')} {piece}: {time.process_time() - began:.0f} s", flush=True)


def do_piece(piece: Piece, data: Path, out: Path) -> bool:
    """Do a piece and keep its result; return False if another process is at it."""
    cell = piece.cell
    found = SETS[cell.set]
    place = found.prepare(data / found.source, (out / "data" / cell.set).absolute())
    store = Store(out / "runs" / cell.set / f"{slug(cell.candidate)}-{cell.digest}")
    with store.lock(cell.candidate, "search" if piece.seed is None else f"seed-{piece.seed}-kept") as mine:
        if not mine:
            return False
        seeds = max(1 if piece.seed is None else piece.seed + 1, _seeds_begun(store))
        plan = cell.plan(place, seeds)
        store.begin(plan)
        slots = slots_of(plan.candidates[cell.candidate], plan.budget)
        if piece.seed is None:
            for slot in range(slots):
                job = Job(cell.candidate, "trial", slot)
                if not job.is_done(store):
                    do_job(job, plan, store, "")
            cell.keep_search([_trial(store, cell.candidate, slot) for slot in range(slots)])
            return True
        for slot, trial in enumerate(cell.search() or []):  # of another machine, or an earlier session
            if not store.trial_path(cell.candidate, slot).is_file():
                store.write_json(store.trial_path(cell.candidate, slot), trial)
        job = Job(cell.candidate, "seed", piece.seed)
        if not job.is_done(store):
            do_job(job, plan, store, "")
        cell.keep_run(piece.seed, store)
        return True


def _seeds_begun(store: Store) -> int:
    return store.plan().budget.seeds if store.plan_path.is_file() else 0


def _trial(store: Store, name: str, slot: int) -> dict[str, object]:
    from tophit.comparing.tuning import read_trials

    return read_trials([store.trial_path(name, slot)])[0]
