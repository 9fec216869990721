"""What the searches found: whether at an edge of what was allowed, and what the papers' own values would have given."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.claims.cells import Cell
from benchmarks.claims.evidence import FEWEST_SEEDS
from benchmarks.claims.hypotheses import Claim
from benchmarks.claims.objectives import OBJECTIVES
from benchmarks.claims.sets import SETS
from tophit.comparing.tuning import best_trial

Trial = dict[str, Any]


def rate_of(trial: Trial) -> float:
    """Return the rate of a trial's head, which is that of all that it trains of the network."""
    return trial["settings"]["optimizer"]["head"]["lr"]


def edges(name: str, cells: Sequence[Cell]) -> str:
    """Say how many searches of a set ended at an edge: of the rates, after one epoch, or cut by the largest number."""
    found = SETS[name]
    best = [trial for cell in cells for seed in cell.seeds() if (trial := best_trial(cell.search(seed) or []))]
    if not best:
        return ""
    counts = {
        "lowest rate": sum(rate_of(trial) == min(found.rates) for trial in best),
        "highest rate": sum(rate_of(trial) == max(found.rates) for trial in best),
        "one epoch": sum(trial["best_epoch"] == 1 for trial in best),
        "cut": sum(is_cut(name, trial) for trial in best),
    }
    return ", ".join(f"{word} {count}" for word, count in counts.items()) + f" of {len(best)}"


def is_cut(name: str, trial: Trial) -> bool:
    """Whether the largest number of epochs may have ended a trial while it still learned."""
    return trial["best_epoch"] + SETS[name].patience > SETS[name].epochs


def at_papers_values(claim: Claim, name: str, results: Path) -> float | None:
    """Return the difference with the papers' values of both, only the rate searched; the mean over seeds.

    On the validation classes of the searches, as nothing else was run with them. None if a search is missing.
    """
    cells = [Cell(name, each, results) for each in (claim.better, claim.worse)]
    seeds = [seed for seed in range(SETS[name].most_seeds) if all(cell.is_found(seed) for cell in cells)]
    if len(seeds) < FEWEST_SEEDS:
        return None
    found = [[_best_at_papers_value(cell, seed) for seed in seeds] for cell in cells]
    return sum(one - other for one, other in zip(*found, strict=True)) / len(seeds)


def _best_at_papers_value(cell: Cell, seed: int) -> float:
    objective, set_up = OBJECTIVES[cell.candidate], SETS[cell.set]
    first = ((objective.few or objective.values) if set_up.few_images else objective.values)[0]
    trials = cell.search(seed) or []
    return max(trial["value"] for trial in trials if trial["settings"].get(objective.path) == first and trial["value"])
