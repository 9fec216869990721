"""Retrieval metrics against the literal reference, scikit-learn and pytorch-metric-learning, and their invariances."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from sklearn.metrics import average_precision_score, ndcg_score

from reference import metrics as reference
from tophit.evaluation import RetrievalMetrics, one_set, ranks, retrieval_metrics, scores, sorted_rows

KS = {"recall_at": (1, 3, 50), "precision_at": (1, 4, 50), "ndcg_at": (1, 5, 50)}
SMALL = 2 * scores.ROW_TILE * scores.COLUMN_TILE * 4  # a budget that leaves one tile a strip


def random_set(seed: int, count: int, classes: int, dim: int = 6) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((count, dim)).astype(np.float32), generator.integers(0, classes, count)


def assert_same(first: RetrievalMetrics, second: RetrievalMetrics, order: np.ndarray | slice = slice(None)) -> None:
    assert first.per_query.keys() == second.per_query.keys()
    for name, values in first.per_query.items():
        np.testing.assert_array_equal(values[order], second.per_query[name], err_msg=name)


# Each product counted for both of its items; rows sorted together; each row compared with its thresholds, or sorted; of
# each row, the few scores that reach the higher thresholds apart.
WAYS = ["one set", "sorting together", "comparing", "sorting", "comparing few", "sorting few"]


def count_by(way: str, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(one_set, "DIMENSIONS_PER_COMPARISON", 0 if way == "one set" else np.inf)
    if way != "sorting together":
        patch.setattr(sorted_rows, "SHORT", 0)
    patch.setattr(ranks, "COST_OF_SORTING", 0 if "sorting" in way else 10**9)
    if "few" in way:
        for name, value in (("SHORT", 0), ("FEW", 0.5)):
            patch.setattr(ranks, name, value)


def reference_metrics(scores: np.ndarray, classes: list, item_classes: list, own: list[int]) -> list[dict[str, float]]:
    return [
        reference.query_metrics(
            [int(item_classes[j] == classes[i]) for j in reference.ranking(scores[i].tolist(), own[i])],
            KS["recall_at"],
            KS["precision_at"],
            KS["ndcg_at"],
        )
        for i in range(len(scores))
    ]


def assert_matches_reference(ours: RetrievalMetrics, expected: list[dict[str, float]]) -> None:
    for name in expected[0]:
        np.testing.assert_allclose(ours.per_query[name], [query[name] for query in expected], atol=1e-12, err_msg=name)


# Coordinates from a small grid on the axes: many duplicates, opposite vectors and exact ties.
axis_vectors = st.lists(st.integers(0, 5), min_size=2, max_size=24).map(
    lambda picks: np.vstack([np.eye(3), -np.eye(3)])[picks]
)


@settings(max_examples=80, deadline=None)
@given(axis_vectors, st.data())
def test_ties_and_duplicates_match_the_reference(rows: np.ndarray, data: st.DataObject) -> None:
    labels = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    way = data.draw(st.sampled_from(WAYS))
    with pytest.MonkeyPatch.context() as patch:
        count_by(way, patch)
        ours = retrieval_metrics(rows, labels, **KS)
    expected = reference_metrics(rows @ rows.T, labels, labels, list(range(len(rows))))
    assert_matches_reference(ours, expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40), st.integers(1, 30), st.integers(1, 8))
def test_query_and_gallery_match_the_reference(seed: int, queries: int, items: int, classes: int) -> None:
    generator = np.random.default_rng(seed)
    rows, gallery = generator.standard_normal((queries, 5)), generator.standard_normal((items, 5))
    labels, item_labels = generator.integers(0, classes, queries), generator.integers(0, classes, items)
    own = generator.integers(-1, items, queries)
    ours = retrieval_metrics(rows, labels, gallery, item_labels, own_items=own, **KS)
    scores = np.asarray([[reference.cosine(a, b) for b in gallery] for a in rows])
    assert_matches_reference(ours, reference_metrics(scores, labels.tolist(), item_labels.tolist(), own.tolist()))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_chunk_size_and_way_of_counting_change_nothing(
    monkeypatch: pytest.MonkeyPatch, way: str, dtype: type[np.floating]
) -> None:
    rows, labels = random_set(0, 3900, 780, 8)
    rows = rows.astype(dtype)
    rows[3500:3800] = rows[:300]  # ties between the first and the last block
    rows[1000:1100] = rows[999]  # and inside one
    whole = retrieval_metrics(rows, labels)
    count_by(way, monkeypatch)
    assert_same(retrieval_metrics(rows, labels), whole)
    assert_same(retrieval_metrics(rows, labels, memory_budget=SMALL), whole)
    assert_same(retrieval_metrics(rows, labels, memory_budget=1), whole)


def test_a_product_whose_scores_depend_on_the_place_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting each product for both of its items needs equal scores at every place; else strips are counted."""
    rows, labels = random_set(6, 3000, 600, 16)
    right = retrieval_metrics(rows, labels, rows, labels, own_items=np.arange(3000))
    multiply = one_set._multiply
    calls: list[int] = []

    def unequal(queries: torch.Tensor, items: torch.Tensor, out: torch.Tensor) -> np.ndarray:
        calls.append(1)
        scores = multiply(queries, items, out)
        scores[:, ::2] = np.nextafter(scores[:, ::2], 2, dtype=scores.dtype)
        return scores

    monkeypatch.setattr(one_set, "_multiply", unequal)
    count_by("one set", monkeypatch)
    assert_same(retrieval_metrics(rows, labels), right)
    assert calls


def test_a_small_budget_makes_several_spans_and_groups() -> None:
    rows, labels = random_set(0, 10_000, 2, 4)
    items = torch.from_numpy(rows)
    task = scores.SearchTask(items[:300], labels[:300], items, labels, np.arange(300))
    assert len(scores.ScoreStrips(task, SMALL).spans) == 9
    assert len(scores.ScoreStrips(task).spans) == 1
    assert len(list(ranks.relevant_ranks(task, SMALL))) > len(scores.ScoreStrips(task).strips) == 1


MEASURE_PEAK = """
import resource, sys, numpy as np
from tophit.evaluation import retrieval_metrics
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
classes, budget = int(sys.argv[1]), int(sys.argv[2])
rows, labels = np.random.default_rng(0).random((12_000, 8), np.float32), np.arange(12_000) % classes
retrieval_metrics(rows[:2000], labels[:2000], memory_budget=1)
before = peak()
retrieval_metrics(rows, labels, memory_budget=budget)
print(peak() - before)
"""


@pytest.mark.parametrize("classes", [2000, 150])  # 6 images a class: one set; 80: strips, whole rows sorted
def test_memory_stays_within_the_budget(classes: int) -> None:
    """The similarities of 12,000 vectors alone would take 576 MB."""
    budget = 24 * 2**20
    command = [sys.executable, "-c", MEASURE_PEAK, str(classes), str(budget)]
    used = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert used < budget


def test_a_set_alone_and_inside_chunks_of_others_scores_the_same() -> None:
    """A query's values don't depend on which queries stand beside it."""
    rows, labels = random_set(1, 3000, 300, 64)
    whole = retrieval_metrics(rows, labels, rows, labels, own_items=np.arange(3000))
    chosen = np.asarray([5, 700, 1500, 2999])
    part = retrieval_metrics(rows[chosen], labels[chosen], rows, labels, own_items=chosen)
    assert_same(whole, part, chosen)


def test_thread_count_changes_nothing() -> None:
    rows, labels = random_set(2, 3000, 500, 96)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(retrieval_metrics(rows, labels))
    finally:
        torch.set_num_threads(before)
    assert_same(results[0], results[1])


def test_permutation_of_rows_permutes_the_queries() -> None:
    rows, labels = random_set(3, 2500, 400, 48)
    order = np.random.default_rng(0).permutation(len(rows))
    assert_same(retrieval_metrics(rows, labels), retrieval_metrics(rows[order], labels[order]), order)


@pytest.mark.parametrize("classes", [3, 700])
def test_agrees_with_scikit_learn(classes: int) -> None:
    rows, labels = random_set(4, 2100, classes, 16)
    rows = rows.astype(np.float64)  # scikit-learn gets float64 scores, so that no two change places by rounding
    ours = retrieval_metrics(rows, labels, ndcg_at=(1, 7, 100, 5000)).per_query
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for query in range(0, 2100, 150):
        others = np.arange(2100) != query
        scores, relevant = (unit @ unit[query])[others], (labels == labels[query])[others].astype(int)
        if not relevant.any():
            continue
        assert ours["mAP"][query] == pytest.approx(average_precision_score(relevant, scores), abs=1e-12)
        for k in (1, 7, 100, 5000):
            assert ours[f"ndcg@{k}"][query] == pytest.approx(ndcg_score([relevant], [scores], k=k), abs=1e-12)


def test_agrees_with_pytorch_metric_learning() -> None:
    rows, labels = random_set(5, 600, 80, 12)
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r", "mean_average_precision")
    # Its default k ranks all; Euclidean distance of unit vectors orders as the cosine does.
    theirs = AccuracyCalculator(include=names, k=None).get_accuracy(
        torch.nn.functional.normalize(torch.from_numpy(rows)), torch.from_numpy(labels)
    )
    ours = retrieval_metrics(rows, labels)
    expected = [ours[name] for name in ("precision@1", "R-precision", "MAP@R", "mAP")]
    assert [theirs[name] for name in names] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [3, 6, 33, 64, 513])
def test_equal_vectors_have_equal_scores_wherever_they_stand(dim: int, dtype: torch.dtype) -> None:
    rows = torch.randn(1, dim, dtype=dtype, generator=torch.Generator().manual_seed(dim)).repeat(5000, 1)
    task = scores.SearchTask(rows[:700], np.zeros(700), rows, np.zeros(5000), np.full(700, -1))
    strips = scores.ScoreStrips(task)
    assert len({score for strip in strips.strips for score in np.unique(strips.scores(strip, (0, 5000)))}) == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_all_equal_embeddings_are_ranked_by_index(dtype: type) -> None:
    """Every score ties, so a query's ranking is 0, 1, 2, ... without itself."""
    count = 2300
    rows = np.tile(np.random.default_rng(0).standard_normal(33), (count, 1)).astype(dtype)
    labels = np.arange(count) % 5
    ours = retrieval_metrics(rows, labels, precision_at=(1, 10)).per_query
    for query in (0, 1, 7, 2048, count - 1):
        relevant = [int(labels[j] == labels[query]) for j in range(count) if j != query]
        expected = reference.query_metrics(relevant, (1,), (1, 10), (8,))
        for name, value in expected.items():
            assert ours[name][query] == pytest.approx(value, abs=1e-12), name


def test_a_duplicate_of_the_query_is_a_result_and_the_query_is_not() -> None:
    rows = np.asarray([[1.0, 0], [1, 0], [0.9, 0.1], [0, 1]])
    ours = retrieval_metrics(rows, ["a", "b", "a", "b"], recall_at=(1, 2)).per_query
    assert ours["recall@1"][0] == 0
    assert ours["recall@2"][0] == 1


def test_one_class_is_perfect() -> None:
    ours = retrieval_metrics(random_set(6, 60, 1)[0], ["same"] * 60)
    assert set(ours.values()) == {1.0}


def test_k_above_the_gallery_divides_precision_by_k() -> None:
    rows, labels = random_set(7, 10, 2)
    ours = retrieval_metrics(rows, labels, recall_at=(1000,), precision_at=(1000,), ndcg_at=(1000,)).per_query
    relevant = np.asarray([(labels == label).sum() - 1 for label in labels])
    np.testing.assert_allclose(ours["precision@1000"], np.where(relevant > 0, relevant / 1000, np.nan))


def test_queries_without_relevant_items() -> None:
    rows, labels = random_set(8, 12, 1)[0], [0] * 10 + [1, 2]
    skipped, zero = (retrieval_metrics(rows, labels, queries_without_positives=rule) for rule in ("skip", "zero"))
    assert np.isnan(skipped.per_query["mAP"]).tolist() == [False] * 10 + [True, True]
    assert zero.per_query["mAP"].tolist()[10:] == [0, 0]
    assert zero["mAP"] == pytest.approx(skipped["mAP"] * 10 / 12)
    nothing = retrieval_metrics(rows, range(12), confidence=0.9)
    assert np.isnan(nothing["recall@1"])
    assert np.isnan(nothing.intervals["recall@1"]).all()


def test_labels_of_any_kind() -> None:
    rows = random_set(9, 40, 1)[0]
    numbers = np.arange(40) % 7
    expected = retrieval_metrics(rows, numbers)
    assert retrieval_metrics(rows, [f"class {n}" for n in numbers]) == expected
    assert retrieval_metrics(torch.from_numpy(rows), torch.from_numpy(numbers) + 2**60) == expected


def test_zero_vectors_score_zero() -> None:
    rows = np.asarray([[0.0, 0], [1, 0], [-1, 0], [1, 0.1]])
    assert retrieval_metrics(rows, [0, 0, 1, 1]).per_query["recall@1"][0] == 1  # all tie: index 1 is first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [0]}, "every row needs one label"),
        ({"gallery": [[1.0, 2]]}, "belong together"),
        ({"gallery": [[1.0, 2, 3]], "gallery_labels": [0]}, "same embedder"),
        ({"embeddings": [[1.0, float("nan")], [1, 1]]}, "NaN"),
        ({"embeddings": [1.0, 2.0]}, "shape"),
        ({"embeddings": np.zeros((0, 2)), "labels": []}, "shape"),
        ({"recall_at": [0]}, "at least 1"),
        ({"queries_without_positives": "drop"}, "'skip' or 'zero'"),
        ({"confidence": 95}, "between 0 and 1"),
        ({"confidence": 0.9, "confidence_over": "images"}, "'classes' or 'queries'"),
        ({"own_items": [0, 1]}, "leave them out"),
        ({"gallery": [[1.0, 2]], "gallery_labels": [0], "own_items": [0, 1]}, "own_items"),
    ],
)
def test_wrong_input_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        retrieval_metrics(**{"embeddings": [[1.0, 2], [2, 1]], "labels": [0, 0], **arguments})
