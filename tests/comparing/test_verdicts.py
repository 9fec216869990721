import numpy as np
import pytest
from benchmarks.compare_simulation import World, share_of_pages_without_support, share_of_planted_found
from scipy.stats import nct
from scipy.stats import t as student

from tophit.comparing.statistics import ClassTable, TableSpread, holm, interval, spread
from tophit.comparing.verdicts import DOUBT, detectable, judge, judge_pairs, ranks


def of(mean: float, error: float = 0.01, seeds: int = 5, classes: int = 100) -> TableSpread:
    """Return a spread with this mean and standard error, to which seeds and classes contribute alike."""
    rest = 0.1 * error**2 * seeds * classes
    half = 0.5 * (error**2 * seeds * classes + rest)
    return TableSpread(mean, seeds, classes, half, half, rest)


@pytest.mark.parametrize(
    ("mean", "gain", "word"),
    [
        (0.05, 0.02, "supported"),
        (0.05, 0.2, "supported"),  # though it is less than half of the claim
        (0.0, 0.02, "undecided"),
        (0.0, 0.1, "refuted"),
        (-0.05, 0.02, "refuted"),
        (-0.05, None, "refuted"),
        (0.0, None, "undecided"),
    ],
)
def test_the_interval_alone_gives_the_word(mean: float, gain: float | None, word: str) -> None:
    (verdict,) = judge([of(mean)], [gain])
    assert verdict.word == word
    assert verdict.found == interval(of(mean), 0.95)
    assert (verdict.seeds_needed is not None) <= (word == "undecided")


def test_intervals_exclude_zero_exactly_where_holm_rejects() -> None:
    generator = np.random.default_rng(1)
    for _ in range(50):
        spreads = [of(mean) for mean in generator.normal(scale=0.03, size=6)]
        adjusted = holm([interval(each).p for each in spreads])
        for verdict, p in zip(judge(spreads), adjusted, strict=True):
            assert verdict.adjusted_p == p
            assert verdict.is_real == (p <= DOUBT) == (verdict.found.low > 0 or verdict.found.high < 0)
            assert (verdict.word != "undecided") == verdict.is_real


def test_the_detectable_difference_has_a_power_of_80_percent() -> None:
    """Against the non-central t distribution, which scipy computes in another way."""
    for level in (0.95, 1 - 0.05 / 15):
        for seeds in (3, 10):
            each = of(0.0, seeds=seeds)
            size = detectable(each, level)
            critical = student.ppf((1 + level) / 2, each.freedom)
            assert nct.sf(critical, each.freedom, size / each.error) == pytest.approx(0.8, abs=1e-3)


def test_with_the_seeds_that_it_names_a_finding_would_be_decided_in_80_percent() -> None:
    (verdict,) = judge([of(0.02)], [0.2])
    assert verdict.word == "undecided" or verdict.seeds_needed is None
    (verdict,) = judge([of(0.021)], [None])
    assert verdict.seeds_needed is not None
    for seeds, is_enough in ((verdict.seeds_needed, True), (verdict.seeds_needed - 1, False)):
        more = of(0.021).with_seeds(seeds)
        critical = student.ppf(0.975, more.freedom)
        assert (nct.sf(critical, more.freedom, 0.021 / more.error) >= 0.8) == is_enough
    assert judge([of(0.0)])[0].seeds_needed is None  # no number of seeds would show that a tie is not one
    (verdict,) = judge([of(0.0)], [0.04])
    assert verdict.seeds_needed is not None  # but that it is not half of a gain


def test_claims_that_are_half_true_are_rarely_refuted() -> None:
    """By Holm's own levels a fifth of such pages would refute one, when all others are clearly above 0."""
    generator = np.random.default_rng(2)
    error, gain = 0.0025, 0.02
    pages = [
        judge([of(gain / 2 + error * generator.normal(), error, 40) for _ in range(15)], [gain] * 15)
        for _ in range(300)
    ]
    assert sum(any(each.is_small for each in page) for page in pages) <= 0.06 * len(pages)
    assert sum(each.word == "supported" for page in pages for each in page) > 0.8 * 15 * len(pages)


def test_ranks_intervals_and_p_values_never_contradict_each_other() -> None:
    generator = np.random.default_rng(8)
    for _ in range(20):
        tables = World(seeds=3, classes=30).tables([0.0, 0.02, 0.03, 0.04, 0.06], generator)
        verdicts, rank = judge_pairs(tables), ranks(tables)
        for one in tables:
            others = [other for other in tables if other != one]
            assert rank[one] == 1 + sum(verdicts[one, other].found.high < 0 for other in others)
            assert rank[one] == 1 + sum(
                verdicts[one, other].adjusted_p <= DOUBT and tables[other].mean > tables[one].mean for other in others
            )
            for other in others:
                assert verdicts[one, other].found.low == pytest.approx(-verdicts[other, one].found.high)


def test_a_page_of_nulls_supports_nothing_and_a_gain_of_the_stated_size_is_found() -> None:
    """As many pages as a test has time for; python -m benchmarks.compare_simulation has more."""
    world = World(seeds=8, classes=40)
    assert share_of_pages_without_support(world, 100, seed=2) >= 0.95
    _, found = share_of_planted_found(world, 100, seed=3)
    assert 0.68 <= found <= 0.92


def test_one_method_under_two_names_is_a_tie_even_without_any_spread() -> None:
    table = ClassTable(np.ones((3, 4)), np.full(4, 2.0))
    (verdict,) = judge([spread(table - table)], [None])
    assert (verdict.word, verdict.found.mean, verdict.detectable) == ("undecided", 0.0, 0.0)
