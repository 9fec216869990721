import numpy as np
import pytest
from benchmarks.compare_simulation import World, share_found, share_of_ties_broken
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from tophit.comparing.statistics import ClassTable, PooledSpread, class_table, estimate, holm, spread
from tophit.comparing.verdicts import ranks


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062047362), (4, 2.7764451052), (9, 2.2621571628), (29, 2.0452296421)]
)
def test_intervals_have_the_quantiles_of_students_table(freedom: int, quantile: float) -> None:
    """One seed has one degree of freedom less than classes; the quantiles of 0.975 are those of printed tables."""
    y = np.random.default_rng(freedom).normal(size=(1, freedom + 1))
    found = estimate(ClassTable(y, np.ones(freedom + 1)))
    error = y.std(ddof=1) / (freedom + 1) ** 0.5
    assert (found.high - found.mean) / error == pytest.approx(quantile, rel=1e-9)
    assert (found.mean - found.low) / error == pytest.approx(quantile, rel=1e-9)


def test_probability_and_p_of_one_degree_of_freedom_are_those_of_cauchy() -> None:
    """Student's t with one degree of freedom has the distribution function 1/2 + atan(t) / pi."""
    found = estimate(ClassTable(np.asarray([[1.0, 4.0]]), np.ones(2)))
    t = 2.5 / 1.5
    assert found.probability == pytest.approx(0.5 + np.arctan(t) / np.pi, rel=1e-12)
    assert found.p == pytest.approx(2 * (0.5 - np.arctan(t) / np.pi), rel=1e-12)


def test_mean_is_over_queries_and_seeds() -> None:
    labels = np.asarray(["a", "b", "a", "c", "b", "d"])
    values = [np.asarray([1, 0, 1, 1, 1, np.nan]), np.asarray([0, 0, 1, 1, 1, np.nan])]
    table = class_table(values, labels)
    assert table.counts.tolist() == [2, 2, 1]
    assert table.sums.tolist() == [[2, 1, 1], [1, 1, 1]]
    assert estimate(table).mean == pytest.approx(np.nanmean(values))
    with pytest.raises(ValueError, match=r"same queries must have a value"):
        class_table([np.asarray([1.0, np.nan]), np.ones(2)], np.asarray(["a", "a"]))


def test_interval_of_equal_classes_is_that_of_two_way_analysis_of_variance() -> None:
    """Against the textbook's sums of squares, written out cell by cell."""
    generator = np.random.default_rng(1)
    y = generator.normal(size=(4, 7)) + generator.normal(size=(4, 1)) + 2 * generator.normal(size=(1, 7))
    found = estimate(ClassTable(5 * y, np.full(7, 5.0)))
    whole = sum(y[s, c] for s in range(4) for c in range(7)) / 28
    of_seed = [sum(y[s]) / 7 for s in range(4)]
    of_class = [sum(y[:, c]) / 4 for c in range(7)]
    seeds = 7 * sum((x - whole) ** 2 for x in of_seed) / 3
    classes = 4 * sum((x - whole) ** 2 for x in of_class) / 6
    rest = sum((y[s, c] - of_seed[s] - of_class[c] + whole) ** 2 for s in range(4) for c in range(7)) / 18
    assert seeds > rest
    assert classes > rest
    total = seeds + classes - rest
    freedom = total**2 / (seeds**2 / 3 + classes**2 / 6 + rest**2 / 18)
    half = student.ppf(0.975, freedom) * (total / 28) ** 0.5
    assert found.mean == pytest.approx(whole)
    assert found.high - found.mean == pytest.approx(half, rel=1e-6)
    assert found.p == pytest.approx(2 * student.sf(abs(whole) / (total / 28) ** 0.5, freedom), rel=1e-6)


def test_one_seed_has_the_interval_of_a_t_test_over_classes() -> None:
    y = np.random.default_rng(2).normal(size=(1, 30))
    found = estimate(ClassTable(y, np.ones(30)))
    half = student.ppf(0.975, 29) * y.std(ddof=1) / 30**0.5
    assert found.high - found.mean == pytest.approx(half, rel=1e-6)


def test_no_difference_at_all_is_a_tie() -> None:
    table = ClassTable(np.ones((3, 4)), np.full(4, 2.0))
    found = estimate(table - table)
    assert (found.mean, found.low, found.high, found.probability, found.p) == (0, 0, 0, 0.5, 1)
    assert ranks({"a": table, "b": table}) == {"a": 1, "b": 1}


def test_other_queries_can_not_be_paired() -> None:
    with pytest.raises(ValueError, match=r"same seeds and the same test queries"):
        ClassTable(np.ones((2, 3)), np.ones(3)) - ClassTable(np.ones((2, 3)), np.full(3, 2.0))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_what_its_steps_reject(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(after >= before for before, after in zip(p_values, adjusted, strict=True))
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    rejected = set()
    for place, index in enumerate(order):  # step down until one is not rejected
        if p_values[index] * (len(p_values) - place) > 0.05:
            break
        rejected.add(index)
    assert {i for i, p in enumerate(adjusted) if p <= 0.05} == rejected


def test_a_planted_tie_is_called_a_tie() -> None:
    """The false positive rate of the comparison's own test is at most 5%, up to the noise of 300 repetitions."""
    own, _, _ = share_found(World(seeds=5), 0.0, 300, seed=3)
    assert own <= 0.05 + 2 * (0.05 * 0.95 / 300) ** 0.5
    assert share_of_ties_broken(World(seeds=5, classes=60), 5, 100, seed=4) <= 0.05 + 2 * (0.05 * 0.95 / 100) ** 0.5


def test_a_planted_difference_is_found() -> None:
    own, _, _ = share_found(World(seeds=5), 0.04, 60, seed=5)
    assert own >= 0.95
    world, generator = World(seeds=5), np.random.default_rng(6)
    assert ranks(world.tables([0.0, 0.08, 0.08], generator)) == {"0": 3, "1": 1, "2": 1}


def test_classes_alone_or_seeds_alone_would_call_ties_differences() -> None:
    """Why the comparison looks at both: with candidates that differ by class and seed the others are far above 5%."""
    world = World(seeds=5, classes=25, over_seeds=0.02, on_classes=0.05)
    own, seeds_alone, classes_alone = share_found(world, 0.0, 200, seed=7)
    assert own <= 0.08
    assert seeds_alone > 0.09
    assert classes_alone > 0.12


def test_the_spread_with_more_seeds_is_what_more_seeds_show() -> None:
    """Predicted from 4 seeds, on average over many tables, the squared error is that of tables with 16 seeds."""
    generator = np.random.default_rng(9)
    predicted, seen = [], []
    for _ in range(300):
        classes = 0.02 * generator.normal(size=30)

        def table(seeds: int, classes: np.ndarray = classes) -> ClassTable:
            runs = 0.01 * generator.normal(size=(seeds, 1))
            return ClassTable(classes + runs + 0.03 * generator.normal(size=(seeds, 30)), np.ones(30))

        predicted.append(spread(table(4)).with_seeds(16).error ** 2)
        seen.append(spread(table(16)).error ** 2)
    assert np.mean(predicted) == pytest.approx(np.mean(seen), rel=0.1)
    own = spread(table(4))
    assert own.with_seeds(4) == own
    with pytest.raises(ValueError, match="one seed"):
        spread(table(1)).with_seeds(3)


def test_the_mean_over_sets_has_the_error_of_independent_means() -> None:
    generator = np.random.default_rng(10)
    parts = [spread(ClassTable(generator.normal(size=(3, 20)), np.ones(20))) for _ in range(2)]
    pooled = PooledSpread(tuple(parts))
    assert pooled.mean == pytest.approx((parts[0].mean + parts[1].mean) / 2)
    assert pooled.error == pytest.approx((parts[0].error ** 2 + parts[1].error ** 2) ** 0.5 / 2)
    assert min(each.freedom for each in parts) <= pooled.freedom <= sum(each.freedom for each in parts)
    assert PooledSpread((parts[0],)).freedom == pytest.approx(parts[0].freedom)
