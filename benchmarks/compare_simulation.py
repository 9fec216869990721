"""Simulated comparisons with known truth: how often a tie is called a difference, and how often a difference is found.

    python -m benchmarks.compare_simulation

Each repetition draws runs of candidates on test classes of uneven size: a query is a hit with a probability that
depends on its class, on the seed, on how the candidate does on that class, and on the planted difference. Three ways
to test the same data: the comparison's own (over seeds and classes), over seeds alone, over classes alone.

Then pages of verdicts, as docs/claims.md has them: 15 claims are judged together. A page of nulls, on which two methods
have the same mean, must not support anything; a gain of the size that the page itself states to be detectable must be
found in 80% of the pages; and where every claim is half true, none must be refuted.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from tophit.comparing.statistics import ClassTable, PooledSpread, estimate, spread
from tophit.comparing.verdicts import Verdict, judge, ranks
from tophit.evaluation.confidence import paired_difference

_DOUBT = 0.05


@dataclass(frozen=True)
class World:
    """How candidates vary: standard deviations of the hit rate over classes, seeds, and candidates on classes."""

    seeds: int = 5
    classes: int = 100
    over_classes: float = 0.15
    over_seeds: float = 0.004
    on_classes: float = 0.02

    def candidate(
        self, rates: np.ndarray, counts: np.ndarray, gain: float, generator: np.random.Generator
    ) -> ClassTable:
        """Return the hits of a candidate's runs, whose true mean is ``gain`` above that of the classes."""
        own = self.on_classes * generator.normal(size=self.classes)
        runs = self.over_seeds * generator.normal(size=(self.seeds, 1))
        chance = np.clip(rates + own + runs + gain, 0, 1)
        return ClassTable(generator.binomial(counts.astype(int), chance).astype(float), counts)

    def tables(self, gains: list[float], generator: np.random.Generator) -> dict[str, ClassTable]:
        """Return candidates with these planted gains, on the same classes."""
        rates = 0.6 + self.over_classes * generator.normal(size=self.classes)
        counts = generator.integers(20, 80, self.classes).astype(float)
        return {f"{i}": self.candidate(rates, counts, gain, generator) for i, gain in enumerate(gains)}


def over_seeds_alone(table: ClassTable) -> float:
    """Return the p-value of the paired t-test over seeds, as many papers' tables invite."""
    means = table.sums.sum(axis=1) / table.counts.sum()
    error = means.std(ddof=1) / len(means) ** 0.5
    return 2 * float(stdtr(len(means) - 1, -abs(means.mean()) / error))


def over_classes_alone(table: ClassTable) -> float:
    """Return the p-value of one seed's run by the bootstrap over classes."""
    values = table.sums[0] / table.counts
    return paired_difference(values, np.zeros_like(values), np.arange(len(values)), draws=1000).p_bootstrap


def share_found(world: World, gain: float, repetitions: int, seed: int = 0) -> tuple[float, float, float]:
    """Return how often a gain of one candidate over another is called real, by each of the three ways."""
    generator = np.random.default_rng(seed)
    found = np.zeros(3)
    for _ in range(repetitions):
        tables = world.tables([0.0, gain], generator)
        difference = tables["1"] - tables["0"]
        p_values = estimate(difference).p, over_seeds_alone(difference), over_classes_alone(difference)
        found += [p <= _DOUBT for p in p_values]
    return tuple((found / repetitions).tolist())


def share_of_ties_broken(world: World, candidates: int, repetitions: int, seed: int = 0) -> float:
    """Return how often a ranking of equal candidates has any rank but the first."""
    generator = np.random.default_rng(seed)
    broken = 0
    for _ in range(repetitions):
        broken += max(ranks(world.tables([0.0] * candidates, generator)).values()) > 1
    return broken / repetitions


CLAIMED = 0.02
"""What the simulated papers claim to gain."""
REGIMES = (1, 2, 2)
"""On how many sets each of the three regimes is tried: photos, many classes, heads."""
PAPERS = 5


def page_of_verdicts(world: World, gains: list[float], generator: np.random.Generator) -> list[Verdict]:
    """Return the verdicts of a simulated page with these true gains, a regime's mean over its sets each."""
    spreads = []
    for number, gain in enumerate(gains):
        pairs = [world.tables([0.0, gain], generator) for _ in range(REGIMES[number % len(REGIMES)])]
        spreads.append(PooledSpread(tuple(spread(pair["1"] - pair["0"]) for pair in pairs)))
    return judge(spreads, [CLAIMED] * len(gains))


def share_of_pages_without_support(world: World, pages: int, seed: int = 0) -> float:
    """Return the share of pages of nulls on which no claim is called supported."""
    generator = np.random.default_rng(seed)
    nulls = [0.0] * PAPERS * len(REGIMES)
    clean = (
        all(verdict.word != "supported" for verdict in page_of_verdicts(world, nulls, generator)) for _ in range(pages)
    )
    return sum(clean) / pages


def share_of_planted_found(world: World, pages: int, seed: int = 0) -> tuple[float, float]:
    """Return the gain that pages state to be detectable in their first claim, and how often it is found if planted."""
    generator = np.random.default_rng(seed)
    nulls = [0.0] * PAPERS * len(REGIMES)
    size = float(np.median([page_of_verdicts(world, nulls, generator)[0].detectable for _ in range(20)]))
    found = (page_of_verdicts(world, [size, *nulls[1:]], generator)[0].word == "supported" for _ in range(pages))
    return size, sum(found) / pages


def share_of_pages_that_refute_the_half_true(world: World, pages: int, seed: int = 0) -> float:
    """Return the share of pages that refute a claim although every method has half of what is claimed."""
    generator = np.random.default_rng(seed)
    gains = [CLAIMED / 2] * PAPERS * len(REGIMES)
    wrong = (any(one.is_small for one in page_of_verdicts(world, gains, generator)) for _ in range(pages))
    return sum(wrong) / pages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=400)
    arguments = parser.parse_args()
    print("| seeds | planted gain (points) | seeds and classes | seeds alone | one seed, classes alone |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for seeds in (3, 5, 10):
        for gain in (0.0, 0.005, 0.01, 0.02):
            shares = share_found(World(seeds=seeds), gain, arguments.repetitions)
            cells = " | ".join(f"{100 * share:.1f}%" for share in shares)
            print(f"| {seeds} | {100 * gain:.1f} | {cells} |", flush=True)
    broken = share_of_ties_broken(World(), 6, arguments.repetitions // 2)
    print(
        f"\nSix equal candidates, 5 seeds: a ranking with more than one rank in {100 * broken:.1f}% of the repetitions."
    )
    print(f"\nPages of {PAPERS * len(REGIMES)} verdicts, {arguments.pages} of each kind:\n")
    print(
        "| seeds | pages of nulls that support nothing | detectable gain, as stated (points) | found if planted "
        "| pages that refute a half truth |"
    )
    print("| --- | --- | --- | --- | --- |", flush=True)
    for seeds in (3, 5, 10):
        clean = share_of_pages_without_support(World(seeds=seeds), arguments.pages)
        size, found = share_of_planted_found(World(seeds=seeds), arguments.pages)
        halves = share_of_pages_that_refute_the_half_true(World(seeds=seeds), arguments.pages)
        print(
            f"| {seeds} | {100 * clean:.1f}% | {100 * size:.1f} | {100 * found:.1f}% | {100 * halves:.1f}% |",
            flush=True,
        )


if __name__ == "__main__":
    main()
