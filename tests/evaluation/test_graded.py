"""Graded relevance: where it comes from, and nDCG and H-AP against scikit-learn and literal definitions."""

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from tophit.evaluation import Relevance, graded_metrics, paired_difference, retrieval_metrics

RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.normal(size=(40, 5))
GRADES = RANDOM.integers(0, 4, (40, 40)) * (RANDOM.random((40, 40)) < 0.3)


def graded_ap(order: list[int], grades: np.ndarray) -> float:
    """H-AP as printed, one loop per sum."""
    total = 0.0
    for place, i in enumerate(order):
        if grades[i] > 0:
            total += sum(min(grades[i], grades[j]) for j in order[: place + 1]) / (place + 1)
    return total / sum(grades[j] for j in order)


def orders(queries: np.ndarray, items: np.ndarray, own: bool) -> list[list[int]]:
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (queries, items)]
    scores = unit[0] @ unit[1].T
    return [
        [j for j in sorted(range(len(items)), key=lambda j: (-row[j], j)) if not (own and j == q)]
        for q, row in enumerate(scores)
    ]


@pytest.mark.parametrize("gain", ["exponential", "linear"])
def test_ndcg_is_scikit_learns(gain) -> None:
    found = graded_metrics(VECTORS, GRADES, ndcg_at=(1, 5, 100), gain=gain)
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    for q in range(40):
        others = np.arange(40) != q
        grades = GRADES[q, others]
        gains = (2.0**grades - 1 if gain == "exponential" else grades)[None]
        for k in (1, 5, 100):
            expected = ndcg_score(gains, (unit[q] @ unit.T)[None, others], k=k)
            assert found.per_query[f"ndcg@{k}"][q] == pytest.approx(expected)


def test_hierarchical_average_precision_is_the_literal_one() -> None:
    found = graded_metrics(VECTORS, GRADES)
    expected = [graded_ap(order, GRADES[q]) for q, order in enumerate(orders(VECTORS, VECTORS, True))]
    np.testing.assert_allclose(found.per_query["H-AP"], expected)
    assert found["H-AP"] == pytest.approx(np.mean(expected))


def test_a_gallery_of_its_own_and_queries_without_anything_relevant() -> None:
    grades = GRADES[:10, 10:].copy()
    grades[3] = 0
    found = graded_metrics(VECTORS[:10], grades, gallery=VECTORS[10:])
    expected = [
        graded_ap(o, grades[q]) if q != 3 else np.nan for q, o in enumerate(orders(VECTORS[:10], VECTORS[10:], False))
    ]
    np.testing.assert_allclose(found.per_query["H-AP"], expected)
    assert found["H-AP"] == pytest.approx(np.nanmean(expected))


def test_with_equal_labels_it_is_what_retrieval_metrics_says() -> None:
    labels = RANDOM.integers(0, 6, 40).tolist()
    graded, plain = graded_metrics(VECTORS, Relevance.of_labels(labels), (4, 8)), retrieval_metrics(VECTORS, labels)
    assert graded["H-AP"] == pytest.approx(plain["mAP"])
    assert graded["ndcg@8"] == pytest.approx(plain["ndcg@8"])


def test_equal_scores_go_to_the_lower_index() -> None:
    same = np.asarray([[1.0, 0.0]] * 4)
    found = graded_metrics(same, [[0, 0, 1, 0], [0] * 4, [0] * 4, [1, 0, 0, 0]])
    assert found.per_query["H-AP"][0] == pytest.approx(1 / 2)  # items 1, 2, 3 tie: 2 is second
    assert found.per_query["H-AP"][3] == 1


def test_memory_changes_nothing() -> None:
    assert dict(graded_metrics(VECTORS, GRADES, memory_budget=1)) == dict(graded_metrics(VECTORS, GRADES))


def test_intervals_and_paired_differences() -> None:
    labels = np.arange(40) // 4
    better = VECTORS + 4 * np.eye(10)[labels] @ RANDOM.normal(size=(10, 5))
    grades = Relevance.of_labels(labels.tolist())
    one, other = (graded_metrics(v, grades, classes=labels, confidence=0.95) for v in (better, VECTORS))
    low, high = one.intervals["H-AP"]
    assert low < one["H-AP"] < high
    gain = paired_difference(one.per_query["H-AP"], other.per_query["H-AP"], labels)
    assert gain.low > 0


def test_paths_count_the_levels_in_common_from_the_top() -> None:
    paths = ["bird/finch/robin", "bird/finch", "bird/owl/robin", "fish", ["bird", "finch", "robin"]]
    assert Relevance.of_paths(paths).rows(0, 5).tolist() == [
        [3, 2, 1, 0, 3], [2, 2, 1, 0, 2], [1, 1, 3, 0, 1], [0, 0, 0, 1, 0], [3, 2, 1, 0, 3]
    ]  # fmt: skip
    assert Relevance.of_paths(["a/b"], ["a", "a/b/c"]).rows(0, 1).tolist() == [[1, 2]]


def test_sets_share_a_label_or_enough_of_them() -> None:
    sets = [{"red", "shoe"}, ["red"], {"blue", "shoe", "leather"}, []]
    assert Relevance.of_sets(sets).rows(0, 4).tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]
    assert Relevance.of_sets(sets, jaccard=0.5).rows(0, 1).tolist() == [[1, 1, 0, 0]]
    assert Relevance.of_sets([{"new"}], [{"red"}, {"new", "x"}]).rows(0, 1).tolist() == [[0, 1]]


def test_judgements_of_named_queries_and_items() -> None:
    found = Relevance.of_judgements([("q2", "b", 3), ("q1", "a", 1)], ["q1", "q2"], ["a", "b"])
    assert found.rows(0, 2).tolist() == [[1, 0], [0, 3]]
    with pytest.raises(ValueError, match="names the item 'c'"):
        Relevance.of_judgements([("q1", "c", 1)], ["q1"], ["a"])
    with pytest.raises(ValueError, match="at least 0"):
        Relevance.of_judgements([("q1", "a", -1)], ["q1"], ["a"])


@pytest.mark.parametrize(
    ("relevance", "options", "message"),
    [
        (GRADES[:5], {}, r"relevance has shape \(5, 40\)"),
        (-GRADES, {}, "at least 0"),
        (GRADES[0], {}, r"matrix \(queries, items\)"),
        (GRADES, {"ndcg_at": (0,)}, "at least 1"),
        (GRADES, {"gain": "cubic"}, "exponential"),
        (GRADES, {"confidence": 2.0}, "between 0 and 1"),
    ],
)
def test_wrong_input_is_named(relevance, options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graded_metrics(VECTORS, relevance, **options)
