"""The one rule by which differences are judged: every headline, table, figure and file follows from it.

The judgements that are made together form a family. Holm's procedure gives each a level, so that all of them together
are right 95% of the time, and the interval of a difference has that level. It decides:

- ``supported``: the interval is above 0.
- ``refuted``: it is below 0; or a gain was claimed, and the interval at the family's strictest level is below half of
  it. Holm's own levels hold for tests of 0 only: with them, claims that are half true would be refuted too often.
- ``undecided``: neither. Then it is said how many seeds would decide with a probability of 80%, if the truth is what
  was found.

Before that, the power: the smallest true difference that would have been found with a probability of 80%, from the
spread over seeds and classes alone. ``python -m benchmarks.compare_simulation`` shows that the rule holds.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from scipy.special import nctdtrinc, stdtrit

from tophit.comparing.statistics import ClassTable, Estimate, Spread, holm, interval, spread

DOUBT = 0.05
"""How often a family of judgements may be wrong."""
POWER = 0.8
_MOST_SEEDS = 100  # that anyone would run

Word = Literal["supported", "refuted", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """A difference as judged: ``found`` has the interval of its level, ``adjusted_p`` is at most 0.05 beyond doubt."""

    word: Word
    found: Estimate
    adjusted_p: float
    detectable: float  # the smallest true difference that would have been found with a probability of 80%
    is_small: bool  # less than half of what was claimed, beyond doubt
    seeds_needed: int | None
    """That would decide it with a probability of 80% if the truth is what was found; None: none would, or it is."""

    @property
    def is_real(self) -> bool:
        """Whether the difference is beyond doubt, in whichever direction."""
        return self.adjusted_p <= DOUBT


def judge(
    spreads: Sequence[Spread], claimed: Iterable[float | None] | None = None, planned: int | None = None
) -> list[Verdict]:
    """Judge a family of differences; ``claimed`` are the gains that someone says they have, if any.

    ``planned`` is how many the family will have, if some are not measured yet: they count from the start, so that a
    verdict does not become weaker when they come in.
    """
    gains = [None] * len(spreads) if claimed is None else list(claimed)
    missing = max(0, (planned or 0) - len(spreads))
    p_values = [*(interval(each).p for each in spreads), *([1.0] * missing)]
    adjusted, levels = holm(p_values)[: len(spreads)], _levels(p_values)[: len(spreads)]
    strictest = 1 - DOUBT / max(1, len(p_values))
    verdicts = []
    for each, gain, p, level in zip(spreads, gains, adjusted, levels, strict=True):
        found = interval(each, level)
        is_small = gain is not None and interval(each, strictest).high < gain / 2
        word = _word(found, is_small)
        needed = _seeds_needed(each, gain, level, strictest) if word == "undecided" else None
        verdicts.append(Verdict(word, found, p, detectable(each, strictest), is_small, needed))
    return verdicts


def _word(found: Estimate, is_small: bool) -> Word:
    if found.low > 0:
        return "supported"
    return "refuted" if is_small or found.high < 0 else "undecided"


def _levels(p_values: Sequence[float]) -> list[float]:
    """Return the level of each interval, so that it excludes 0 exactly if Holm's adjusted p-value is at most 0.05.

    Holm tests the smallest p-value against 0.05 / m, the next against 0.05 / (m - 1), and so on until one fails; that
    one and all after it have the same level.
    """
    count = len(p_values)
    levels = [0.0] * count
    left = count
    for index in sorted(range(count), key=lambda i: p_values[i]):
        levels[index] = 1 - DOUBT / left
        if p_values[index] <= DOUBT / left:
            left -= 1
    return levels


def detectable(found: Spread, level: float = 1 - DOUBT) -> float:
    """Return the smallest true difference whose interval of this level would exclude 0 with a probability of 80%."""
    if found.error == 0:
        return 0.0
    critical = float(stdtrit(found.freedom, (1 + level) / 2))
    return found.error * float(nctdtrinc(found.freedom, 1 - POWER, critical))


def _seeds_needed(found: Spread, gain: float | None, level: float, strictest: float) -> int | None:
    """Return the fewest seeds that would decide with a probability of 80%; None if none would.

    The true difference is taken to be what was found: it is shown to be not 0, or to be less than half of the gain.
    """
    if found.seeds < 2:
        return None

    def is_decided(seeds: int) -> bool:
        more = found.with_seeds(seeds)
        if detectable(more, level) <= abs(found.mean):
            return True
        return gain is not None and detectable(more, strictest) <= gain / 2 - found.mean

    more = range(found.seeds + 1, _MOST_SEEDS + 1)
    place = bisect_left(more, True, key=is_decided)  # what can be detected shrinks with every seed
    return more[place] if place < len(more) else None


Pair = tuple[str, str]


def judge_pairs(tables: Mapping[str, ClassTable]) -> dict[Pair, Verdict]:
    """Judge the differences of all pairs of candidates as one family: (one, other) is by how much one is better."""
    pairs = list(combinations(tables, 2))
    forward = judge([spread(tables[one] - tables[other]) for one, other in pairs])
    backward = judge([spread(tables[other] - tables[one]) for one, other in pairs])
    both = {(other, one): verdict for (one, other), verdict in zip(pairs, backward, strict=True)}
    return dict(zip(pairs, forward, strict=True)) | both


def ranks(tables: Mapping[str, ClassTable], verdicts: Mapping[Pair, Verdict] | None = None) -> dict[str, int]:
    """Return each candidate's rank: one more than the number of candidates that are better beyond doubt.

    ``verdicts`` are those of ``judge_pairs``. Candidates that the data can't tell apart may share a rank.
    """
    found = judge_pairs(tables) if verdicts is None else verdicts
    return {
        name: 1 + sum(found[other, name].word == "supported" for other in tables if other != name) for name in tables
    }
