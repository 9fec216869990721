"""What is done of the plan, what it took, and about how long the rest takes."""

from collections import defaultdict
from pathlib import Path
from statistics import mean

from benchmarks.claims.cells import RESULTS, Cell
from benchmarks.claims.rounds import Round
from benchmarks.claims.running import Piece, pieces
from benchmarks.claims.sets import SETS


def seconds_of(piece: Piece) -> float | None:
    """Return the processor seconds that a piece took; None if it is not done."""
    if piece.kind == "search":
        trials = piece.cell.search(piece.seed)
        return None if trials is None else sum(trial["processor_seconds"] for trial in trials)
    found = piece.cell.run(piece.seed)
    return None if found is None else found.get("processor_seconds", 0.0)


class Progress:
    """The pieces of the plan with what each took, and an estimate for those that are not done."""

    def __init__(self, results: Path = RESULTS) -> None:
        self.taken: dict[Piece, float | None] = {}
        self.rounds: dict[Round, list[Piece]] = defaultdict(list)
        for each, piece in pieces(results=results):
            self.rounds[each].append(piece)
            self.taken[piece] = seconds_of(piece)
        known: dict[tuple[str, str], list[float]] = defaultdict(list)
        for piece, seconds in self.taken.items():
            if seconds is not None:
                known[piece.cell.set, piece.kind].append(seconds / piece.runs)
        self.usual = {kind: mean(seconds) for kind, seconds in known.items()}

    def left(self, pieces: list[Piece]) -> tuple[int, float]:
        """Return how many of some pieces are not done, and their estimated processor hours."""
        waiting = [piece for piece in pieces if self.taken[piece] is None]
        return len(waiting), sum(piece.runs * self._seconds_of_a_run(piece) for piece in waiting) / 3600

    def _seconds_of_a_run(self, piece: Piece) -> float:
        """Return what runs like those of a piece took, or about what they will take."""
        found = SETS[piece.cell.set]
        return self.usual.get((piece.cell.set, piece.kind)) or self.usual.get((found.clean, piece.kind), found.seconds)

    def hours(self, pieces: list[Piece] | None = None) -> float:
        """Return the processor hours that some pieces took, or all."""
        return sum(self.taken[piece] or 0.0 for piece in pieces or self.taken) / 3600

    def missing(self, cells: list[Cell]) -> int:
        """Return how many pieces of some cells are planned and not done."""
        wanted = set(cells)
        return sum(piece.cell in wanted and seconds is None for piece, seconds in self.taken.items())


def print_plan(results: Path = RESULTS) -> None:
    """Print each round: pieces done, hours taken, hours left."""
    progress = Progress(results)
    print(f"{'round':48} {'done':>9} {'hours':>6} {'left':>6}")
    for each, parts in progress.rounds.items():
        waiting, hours = progress.left(parts)
        done = f"{len(parts) - waiting}/{len(parts)}"
        print(f"{each.title:48} {done:>9} {progress.hours(parts):6.2f} {hours:6.2f}")
    waiting, hours = progress.left(list(progress.taken))
    done = f"{len(progress.taken) - waiting}/{len(progress.taken)}"
    print(f"{'all':48} {done:>9} {progress.hours():6.2f} {hours:6.2f}")
