"""From results to verdicts: the first table's family of all papers and regimes, and each paper's claims on each set."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claims.cells import RESULTS, Cell
from benchmarks.claims.hypotheses import PAPERS, Claim, Paper
from benchmarks.claims.sets import REGIMES, SETS
from tophit.comparing.statistics import PooledSpread, TableSpread, spread
from tophit.comparing.verdicts import Verdict, judge

METRIC = "recall@1"
FEWEST_SEEDS = 3
CORE = tuple(name for name, each in SETS.items() if each.regime and not each.clean)
"""The sets of the papers' claims, without those whose labels or sizes were changed."""


def sets_of(regime: str) -> tuple[str, ...]:
    """Return the sets of a regime."""
    return tuple(name for name in CORE if SETS[name].regime == regime)


def difference(better: Cell, worse: Cell, metric: str = METRIC) -> TableSpread | None:
    """Return the difference of two cells over the seeds that both have; None with fewer than three."""
    seeds = sorted(set(better.seeds()) & set(worse.seeds()))
    if len(seeds) < FEWEST_SEEDS:
        return None
    return spread(better.table(seeds, metric) - worse.table(seeds, metric))


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict, on one set or over all measured sets of a regime; None: not run yet."""

    claim: Claim
    sets: tuple[str, ...]  # those that were measured
    missing: tuple[str, ...]  # those that were not yet
    gain: float | None  # of the paper, a fraction
    verdict: Verdict | None
    seeds: int


def first_table(results: Path = RESULTS) -> dict[tuple[str, str], Judged]:
    """Judge each paper's main claim in each regime, by the paper's title and the regime, as one family.

    The difference of a regime is the mean over its sets.
    """
    places = [(paper, regime) for paper in PAPERS for regime in REGIMES]
    tried = [_over_sets(paper.main[regime], sets_of(regime), results) for paper, regime in places]
    return {
        (paper.title, regime): judged
        for (paper, regime), judged in zip(places, _as_family(tried, len(places)), strict=True)
    }


def claims_on(paper: Paper, claims: Sequence[Claim], name: str, results: Path = RESULTS) -> list[Judged]:
    """Judge a paper's claims on one set as one family."""
    return _as_family([_over_sets(claim, (name,), results) for claim in claims], len(claims))


def _over_sets(claim: Claim, names: Iterable[str], results: Path) -> tuple[Claim, dict[str, TableSpread | None]]:
    return claim, {
        name: difference(Cell(name, claim.better, results), Cell(name, claim.worse, results)) for name in names
    }


def _as_family(tried: Sequence[tuple[Claim, dict[str, TableSpread | None]]], planned: int) -> list[Judged]:
    measured = [{name: found for name, found in sets.items() if found is not None} for _, sets in tried]
    gains = [_gain(claim, tuple(found)) for (claim, _), found in zip(tried, measured, strict=True)]
    there = [number for number, found in enumerate(measured) if found]
    spreads = [PooledSpread(tuple(measured[number].values())) for number in there]
    verdicts = dict(zip(there, judge(spreads, [gains[number] for number in there], planned), strict=True))
    return [
        Judged(
            claim,
            tuple(found),
            tuple(name for name in sets if name not in found),
            gains[number],
            verdicts.get(number),
            min((each.seeds for each in found.values()), default=0),
        )
        for number, ((claim, sets), found) in enumerate(zip(tried, measured, strict=True))
    ]


def _gain(claim: Claim, names: Sequence[str]) -> float | None:
    """Return the mean of the paper's gains on the sets that these stand for, as a fraction."""
    gains = [gain for name in names if (gain := claim.gain(SETS[name].like)) is not None]
    return sum(gains) / len(gains) / 100 if gains else None
