"""The plan: which cells are run, in the order of what they add to the page for a minute of the processor."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claims.cells import RESULTS, Cell
from benchmarks.claims.hypotheses import ABLATIONS, CONTROL, FIRST, FURTHER, ROBUST, SINGLE, TOGETHER
from benchmarks.claims.objectives import OBJECTIVES
from benchmarks.claims.sets import SETS

_HEADS = ("cub-heads", "cars-heads")
ALL_HEADS = (*_HEADS, "emoji-heads", "products-heads")
"""The sets on which objectives are compared for a default: a head is what most users train."""
_CHANGED = {clean: tuple(name for name, each in SETS.items() if each.clean == clean) for clean in _HEADS}
_OF_FIRST = tuple(name for name in ABLATIONS if OBJECTIVES[name].base in FIRST["c"])
_OF_FURTHER = tuple(name for name in ABLATIONS if name not in _OF_FIRST)


@dataclass(frozen=True)
class Round:
    """Candidates on sets, with so many seeds, or as many as a set has parts to hold out."""

    title: str
    sets: tuple[str, ...]
    candidates: tuple[str, ...]
    seeds: int

    def cells(self, name: str, results: Path = RESULTS) -> Iterator[Cell]:
        """Yield its cells on one of its sets."""
        for candidate in self.candidates:
            yield Cell(name, candidate, results)

    def places(self) -> Iterator[tuple[str, int]]:
        """Yield its sets, each with all of its seeds."""
        yield from ((name, seed) for name in self.sets for seed in range(self.seeds_of(name)))

    def seeds_of(self, name: str) -> int:
        """Return how many seeds it has on one of its sets."""
        return min(self.seeds, SETS[name].most_seeds)


ROUNDS = (
    Round("the first table, heads", _HEADS, FIRST["c"], 3),
    Round("the first table, emoji", ("emoji",), FIRST["b"], 3),
    Round("the first table, photos", ("cub-photos",), FIRST["a"], 3),
    Round("the first table, products", ("products",), FIRST["b"], 3),
    Round("wrong labels and a long tail, birds", _CHANGED["cub-heads"], ROBUST, 3),
    Round("more seeds, heads", _HEADS, FIRST["c"], 6),
    Round("ablations of the first table, heads", _HEADS, _OF_FIRST, 3),
    Round("more seeds, wrong labels and a long tail, birds", _CHANGED["cub-heads"], ROBUST, 6),
    Round("more seeds, ablations, birds", ("cub-heads",), _OF_FIRST, 6),
    Round("which objective, heads", ALL_HEADS, (*SINGLE, *TOGETHER), 3),
    Round("more seeds, photos", ("cub-photos",), FIRST["a"], 5),
    Round("the control of PROFS", (*_HEADS, "emoji", "cub-photos"), (CONTROL,), 3),
    Round("more seeds, emoji", ("emoji",), FIRST["b"], 5),
    Round("further claims, birds", ("cub-heads",), FURTHER, 3),
    Round("further ablations, birds", ("cub-heads",), _OF_FURTHER, 3),
    Round("more seeds, products", ("products",), FIRST["b"], 5),
    Round("wrong labels and a long tail, cars", _CHANGED["cars-heads"], ROBUST, 3),
)
"""Three seeds decide only large differences (python -m benchmarks.compare_simulation). Heads get more soon, because
they cost seconds. An ablation comes after what it ablates."""


def planned_seeds(name: str, candidate: str) -> int:
    """Return how many seeds a candidate is to have on a set."""
    return max(
        (each.seeds_of(name) for each in ROUNDS if name in each.sets and candidate in each.candidates), default=0
    )
