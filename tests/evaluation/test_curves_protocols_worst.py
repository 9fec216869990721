"""Curves, VehicleID's protocol and the worst queries."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from reference import metrics as reference
from tophit.evaluation import pair_curves, retrieval_metrics, vehicle_id_metrics, worst_queries
from tophit.evaluation.protocols import draw_one_per_class


def random_set(seed: int, count: int = 90, classes: int = 9) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    return 0.7 * generator.standard_normal((classes, 8))[labels] + generator.standard_normal((count, 8)), labels


def all_pairs(rows: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    first, second = np.triu_indices(len(rows), 1)
    return (unit @ unit.T)[first, second], labels[first] == labels[second]


def test_exact_curves_match_scikit_learn() -> None:
    rows, labels = random_set(0)
    scores, same = all_pairs(rows, labels)
    curves = pair_curves(rows, labels, bits=None)
    assert curves.resolution == 0
    assert curves.roc_auc == pytest.approx(roc_auc_score(same, scores), abs=1e-9)
    assert curves.average_precision == pytest.approx(average_precision_score(same, scores), abs=1e-9)
    false_rate, true_rate, _ = roc_curve(same, scores, drop_intermediate=False)
    np.testing.assert_allclose(np.append(0, curves.false_positive_rate), false_rate, atol=1e-12)
    np.testing.assert_allclose(np.append(0, curves.recall), true_rate, atol=1e-12)


def test_counts_at_every_threshold_of_the_histogram_are_exact() -> None:
    rows, labels = random_set(1)
    scores, same = all_pairs(rows, labels)
    curves = pair_curves(rows, labels, bits=5)
    assert curves.resolution == 1 / 32
    assert curves.thresholds.tolist() == sorted(np.arange(-32, 33) / 32, reverse=True)
    for threshold, true, false in zip(curves.thresholds, curves.true_accepted, curves.false_accepted, strict=True):
        assert true == np.count_nonzero(scores[same] >= threshold)
        assert false == np.count_nonzero(scores[~same] >= threshold)


def test_curves_of_query_and_gallery_count_every_pair_but_own_items() -> None:
    rows, labels = random_set(2)
    curves = pair_curves(rows[:30], labels[:30], rows, labels, own_items=np.arange(30))
    assert curves.true_accepted[-1] + curves.false_accepted[-1] == 30 * 89


def test_curves_hold_no_more_than_the_budget_allows() -> None:
    rows, labels = random_set(3, 2500, 30)
    whole, small = (pair_curves(rows.astype(np.float32), labels, memory_budget=budget) for budget in (2**30, 1))
    np.testing.assert_array_equal(whole.true_accepted, small.true_accepted)
    np.testing.assert_array_equal(whole.false_accepted, small.false_accepted)
    with pytest.raises(ValueError, match="too many"):
        pair_curves(np.ones((5000, 1)), np.zeros(5000), bits=None)


def test_equal_vectors_and_opposite_ones_stay_in_the_histogram() -> None:
    rows = np.random.default_rng(4).standard_normal((3, 50)).astype(np.float32)
    curves = pair_curves(np.vstack([rows, rows, -rows]), [0, 1, 2] * 3)
    assert curves.true_accepted[-1] + curves.false_accepted[-1] == 36


def test_a_draw_takes_one_image_of_every_class_and_each_image_at_times() -> None:
    classes = np.asarray([0, 1, 1, 2, 2, 2])
    generator = np.random.default_rng(0)
    draws = np.stack([draw_one_per_class(classes, generator) for _ in range(600)])
    assert all(np.bincount(classes[draw]).tolist() == [1, 1, 1] for draw in draws)
    np.testing.assert_allclose(draws.mean(axis=0), [1, 0.5, 0.5, 1 / 3, 1 / 3, 1 / 3], atol=0.07)


def test_vehicle_id_averages_draws() -> None:
    rows, labels = random_set(5)
    sets = {"small": 4, "listed": [1, 3, 5]}
    results = vehicle_id_metrics(rows, labels, sets, draws=3, seed=7, recall_at=(1, 5))
    assert results == vehicle_id_metrics(rows, labels, sets, draws=3, seed=7, recall_at=(1, 5))
    chosen = np.isin(labels, [1, 3, 5])
    generator = np.random.default_rng((7, 1))
    values = []
    for _ in range(3):
        gallery = draw_one_per_class(labels[chosen], generator)
        part, names = rows[chosen], labels[chosen]
        metrics = retrieval_metrics(part[~gallery], names[~gallery], part[gallery], names[gallery])
        values.append(metrics["recall@1"])
    assert results["listed"]["recall@1"] == pytest.approx(np.mean(values))
    # One right image in the gallery: the average precision is one over its rank, and five ranks hold all of four.
    assert results["small"]["recall@5"] == 1.0


@pytest.mark.parametrize(
    ("sets", "message"), [({"large": 2400}, "needs 2400 vehicles"), ({"odd": ["no such"]}, "without images")]
)
def test_vehicle_id_names_what_is_missing(sets: dict, message: str) -> None:
    rows, labels = random_set(6)
    with pytest.raises(ValueError, match=message):
        vehicle_id_metrics(rows, labels, sets)


def test_worst_queries_match_the_reference_ranking() -> None:
    rows, labels = random_set(7)
    names = np.asarray([f"class {label}" for label in labels])
    values = retrieval_metrics(rows, names).per_query["mAP"]
    worst = worst_queries(values, rows, names, count=5, results=12)
    assert [w.query for w in worst.queries] == np.argsort(values, kind="stable")[:5].tolist()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for found in worst.queries:
        order = reference.ranking((unit @ unit[found.query]).tolist(), found.query)
        right = [names[j] == names[found.query] for j in order]
        assert found.results == order[:12]
        assert found.correct == right[:12]
        assert found.first_right_rank == right.index(True) + 1
        assert found.before_first_right == order[: right.index(True)][:12]
        assert found.value == values[found.query]
    nearest = [reference.ranking((unit @ unit[i]).tolist(), i)[0] for i in range(len(rows))]
    mistakes = [(names[i], names[j]) for i, j in enumerate(nearest) if names[i] != names[j]]
    top = worst.confusions[0]
    assert top.queries == max(mistakes.count(pair) for pair in mistakes) == mistakes.count((top.label, top.taken_for))


def test_worst_queries_leave_out_those_without_an_answer() -> None:
    rows = np.random.default_rng(8).standard_normal((6, 3))
    labels = ["a", "a", "a", "b", "c", "d"]
    worst = worst_queries(retrieval_metrics(rows, labels).per_query["mAP"], rows, labels, count=10)
    assert sorted(w.query for w in worst.queries) == [0, 1, 2]
    assert {confusion.label for confusion in worst.confusions} <= {"a"}
