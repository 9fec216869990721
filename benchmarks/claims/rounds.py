"""The plan: which cells are run, in the order of what they add to the page for a minute of the processor."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claims.cells import RESULTS, Cell
from benchmarks.claims.hypotheses import ABLATIONS, CONTROL, FIRST, FURTHER, ROBUST, SINGLE, TOGETHER
from benchmarks.claims.sets import SETS

_HEADS = ("cub-heads", "cars-heads")
ALL_HEADS = (*_HEADS, "emoji-heads", "products-heads")
"""The sets on which objectives are compared for a default: a head is what most users train."""
_CHANGED = {clean: tuple(name for name, each in SETS.items() if each.clean == clean) for clean in _HEADS}


@dataclass(frozen=True)
class Round:
    """Candidates on sets, with so many seeds."""

    title: str
    sets: tuple[str, ...]
    candidates: tuple[str, ...]
    seeds: int

    def cells(self, name: str, results: Path = RESULTS) -> Iterator[Cell]:
        """Yield its cells on one of its sets."""
        for candidate in self.candidates:
            yield Cell(name, candidate, results)


ROUNDS = (
    Round("the first table, heads", _HEADS, FIRST["c"], 3),
    Round("the first table, emoji", ("emoji",), FIRST["b"], 3),
    Round("the first table, photos", ("cub-photos",), FIRST["a"], 3),
    Round("the first table, products", ("products",), FIRST["b"], 3),
    Round("wrong labels and a long tail, birds", _CHANGED["cub-heads"], ROBUST, 3),
    Round("ablations, heads", _HEADS, ABLATIONS, 3),
    Round("which objective, heads", ALL_HEADS, (*SINGLE, *TOGETHER), 3),
    Round("more seeds, photos", ("cub-photos",), FIRST["a"], 5),
    Round("more seeds, emoji and products", ("emoji", "products"), FIRST["b"], 5),
    Round("wrong labels and a long tail, cars", _CHANGED["cars-heads"], ROBUST, 3),
    Round("more seeds, heads", _HEADS, FIRST["c"], 6),
    Round("the control of PROFS", (*_HEADS, "emoji", "cub-photos"), (CONTROL,), 3),
    Round("further claims, heads", ("cub-heads",), FURTHER, 3),
)
"""Three seeds decide only large differences (python -m benchmarks.compare_simulation). Heads get six soon, because they
cost seconds."""


def planned_seeds(name: str, candidate: str) -> int:
    """Return how many seeds a candidate is to have on a set."""
    return max((each.seeds for each in ROUNDS if name in each.sets and candidate in each.candidates), default=0)
