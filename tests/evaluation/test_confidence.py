"""Intervals and paired tests: by hand, against a literal bootstrap, and their coverage on data with a known truth."""

import numpy as np
import pytest

from tophit.evaluation import bootstrap_intervals, paired_difference, retrieval_metrics


def clustered_values(generator: np.random.Generator, classes: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Hits of queries whose class has its own chance of success, drawn from Beta(2, 1): the true mean is 2/3."""
    codes = np.repeat(np.arange(classes), generator.integers(2, 12, classes))
    chance = generator.beta(2, 1, classes)
    return (generator.random(len(codes)) < chance[codes]).astype(float), codes


def coverage(over: str, simulations: int = 1000) -> float:
    generator = np.random.default_rng(0)
    inside = 0
    for _ in range(simulations):
        values, codes = clustered_values(generator)
        low, high = bootstrap_intervals({"hit": values}, codes, 0.95, over, draws=600)["hit"]  # type: ignore[arg-type]
        inside += low <= 2 / 3 <= high
    return inside / simulations


def test_class_intervals_cover_the_truth() -> None:
    assert 0.92 <= coverage("classes") <= 0.98


def test_query_intervals_are_too_narrow_for_queries_of_few_classes() -> None:
    """Why classes are the default."""
    assert coverage("queries", 400) < 0.90


def test_query_intervals_cover_the_truth_of_independent_queries() -> None:
    generator = np.random.default_rng(1)
    inside = 0
    for _ in range(1000):
        values = generator.random(200) < 0.6
        low, high = bootstrap_intervals({"hit": values}, np.arange(200), over="queries", draws=600)["hit"]
        inside += low <= 0.6 <= high
    assert 0.92 <= inside / 1000 <= 0.98


def test_paired_intervals_cover_the_true_difference() -> None:
    generator = np.random.default_rng(2)
    inside = 0
    for _ in range(600):
        first, codes = clustered_values(generator)
        flipped = generator.random(len(codes)) < 0.1  # the other model misses a tenth of the hits: 2/3 * 0.1
        result = paired_difference(first, np.where(flipped, 0, first), codes, draws=600)
        inside += result.low <= 2 / 30 <= result.high
    assert 0.92 <= inside / 600 <= 0.98


def test_permutation_test_rejects_equal_models_as_often_as_it_says() -> None:
    generator = np.random.default_rng(3)
    p = []
    for _ in range(600):
        chance = generator.beta(2, 2, 40)[np.repeat(np.arange(40), 5)]
        a, b = (generator.random(200) < chance for _ in range(2))
        p.append(paired_difference(a, b, np.repeat(np.arange(40), 5), draws=300).p_permutation)
    assert 0.03 <= np.mean(np.asarray(p) <= 0.05) <= 0.075


def test_interval_matches_a_literal_bootstrap() -> None:
    values, codes = clustered_values(np.random.default_rng(4))
    generator = np.random.default_rng(5)
    means = []
    for _ in range(4000):
        drawn = generator.integers(0, 60, 60)
        means.append(np.concatenate([values[codes == c] for c in drawn]).mean())
    expected = np.quantile(means, [0.05, 0.95])
    assert bootstrap_intervals({"hit": values}, codes, 0.9, draws=4000)["hit"] == pytest.approx(expected, abs=0.006)


def test_two_classes_give_the_three_means_a_draw_can_have() -> None:
    interval = bootstrap_intervals({"m": np.asarray([0.0, 0, 1, 1])}, ["a", "a", "b", "b"], 0.95)["m"]
    assert interval == (0.0, 1.0)
    assert bootstrap_intervals({"m": np.asarray([0.3, np.nan])}, ["a", "b"])["m"] == pytest.approx((0.3, 0.3))


def test_memory_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values, codes = clustered_values(np.random.default_rng(6))
    whole = bootstrap_intervals({"hit": values}, codes)
    monkeypatch.setattr("tophit.evaluation.confidence._BLOCK", 1000)
    assert bootstrap_intervals({"hit": values}, codes)["hit"] == pytest.approx(whole["hit"], abs=1e-12)


def test_paired_difference_of_clear_equal_and_identical_models() -> None:
    generator = np.random.default_rng(7)
    codes = np.repeat(np.arange(50), 4)
    base = generator.random(200)
    better = paired_difference(base + 0.1 + 0.02 * generator.standard_normal(200), base, codes)
    assert better.low < 0.1 < better.high
    assert better.low > 0.09
    assert better.p_permutation < 0.001
    assert better.p_bootstrap < 0.001
    same = paired_difference(base, base, codes)
    assert (same.mean, same.low, same.high, same.p_permutation, same.p_bootstrap) == (0, 0, 0, 1, 1)


def test_permutation_test_of_three_classes_by_hand() -> None:
    """Signs of 1, 2, 3: only +++ and --- of eight reach the total 6."""
    result = paired_difference(np.asarray([1.0, 2, 3]), np.zeros(3), [0, 1, 2], draws=40_000)
    assert result.p_permutation == pytest.approx(0.25, abs=0.01)


def test_queries_without_a_value_are_left_out() -> None:
    first, second = np.asarray([1.0, np.nan, 0.5]), np.asarray([0.5, 0.2, 0.5])
    assert paired_difference(first, second, [0, 1, 1]).mean == pytest.approx(0.25)


def test_retrieval_intervals_hold_the_mean() -> None:
    generator = np.random.default_rng(8)
    metrics = retrieval_metrics(generator.standard_normal((300, 4)), generator.integers(0, 30, 300), confidence=0.95)
    assert metrics.intervals.keys() == metrics.keys()
    assert all(low <= metrics[name] <= high for name, (low, high) in metrics.intervals.items())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paired_difference(np.zeros(2), np.zeros(3), [0, 0]), "same queries"),
        (lambda: paired_difference(np.full(2, np.nan), np.zeros(2), [0, 0]), "nothing to compare"),
        (lambda: bootstrap_intervals({"a": np.zeros(2)}, [0]), "needs its class"),
        (lambda: bootstrap_intervals({"a": np.zeros(2)}, [0, 0], 95), "between 0 and 1"),
    ],
)
def test_wrong_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
