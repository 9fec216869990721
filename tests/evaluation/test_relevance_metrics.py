"""Metrics by name over hierarchies, sets of labels and grades, against definitions, trec_eval and scikit-learn."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from tophit.errors import UsageError
from tophit.evaluation import (
    Relevance,
    bootstrap_intervals,
    pair_curves,
    paired_difference,
    parse_metric,
    retrieval_metrics,
    worst_queries,
)
from tophit.evaluation.nearest import found_lists
from tophit.evaluation.scores import search_task
from tophit.reranking import KReciprocal

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "graded_metrics.json").read_text())
RANDOM = np.random.default_rng(5)
COUNT = 120
VECTORS = RANDOM.normal(size=(COUNT, 4)).astype(np.float32)
PATHS = [tuple(path) for path in RANDOM.integers(0, [2, 2, 3], (COUNT, 3)).tolist()]
LEAVES = ["/".join(map(str, path)) for path in PATHS]
SETS = [{f"tag {i}" for i in np.flatnonzero(RANDOM.random(6) < 0.3)} or {"tag 0"} for _ in range(COUNT)]


def orders(vectors: np.ndarray) -> list[list[int]]:
    """Each item's ranking of the others, equal scores by index."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = unit @ unit.T
    return [sorted((j for j in range(len(vectors)) if j != q), key=lambda j: (-scores[q, j], j)) for q in range(COUNT)]


def shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next((level for level, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))


def literal_h_ap(grades: list[int]) -> float:
    total = sum(
        sum(min(grade, other) for other in grades[: place + 1]) / (place + 1) for place, grade in enumerate(grades)
    )
    return total / sum(grades)


def literal_asi(grades: list[int]) -> float:
    """Of a ranking's grades: the best n items are chosen, among equal grades, so that they overlap most."""
    best, relevant = sorted(grades, reverse=True), sum(grade > 0 for grade in grades)
    shares = []
    for n in range(1, relevant + 1):
        overlap = sum(min(grades[:n].count(grade), best[:n].count(grade)) for grade in set(grades) - {0})
        shares.append(overlap / n)
    return sum(shares) / relevant


def test_trec_eval_gives_the_same_values() -> None:
    queries, gallery = (np.asarray(GOLDEN[name], np.float64) for name in ("queries", "gallery"))
    found = retrieval_metrics(
        queries,
        np.arange(len(queries)),
        gallery,
        np.arange(len(gallery)),
        relevance=Relevance.of_matrix(GOLDEN["grades"]),
        metrics=list(GOLDEN["expected"]),
    )
    for name, values in GOLDEN["expected"].items():
        np.testing.assert_allclose(found.per_query[name], values, err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])  # float64 is counted, float32 sorted
def test_a_hierarchys_metrics_are_the_literal_ones(dtype) -> None:
    vectors = VECTORS.astype(dtype)
    names = ["H-AP", "ASI", "level1-recall@3", "level2-mAP"]
    found = retrieval_metrics(vectors, LEAVES, relevance=Relevance.of_paths(PATHS), metrics=names)
    for query, order in enumerate(orders(vectors)):
        grades = [shared(PATHS[query], PATHS[j]) for j in order]
        assert found.per_query["H-AP"][query] == pytest.approx(literal_h_ap(grades))
        assert found.per_query["ASI"][query] == pytest.approx(literal_asi(grades))
        assert found.per_query["level1-recall@3"][query] == any(grade >= 1 for grade in grades[:3])
        near = [grade >= 2 for grade in grades]
        expected = average_precision_score(near, -np.arange(len(near))) if any(near) else np.nan
        np.testing.assert_allclose(found.per_query["level2-mAP"][query], expected)


def test_plain_metrics_of_a_hierarchy_are_those_of_its_leaves() -> None:
    plain = retrieval_metrics(VECTORS, LEAVES)
    graded = retrieval_metrics(VECTORS, LEAVES, relevance=Relevance.of_paths(PATHS), metrics=["H-AP"])
    for name, value in plain.items():
        assert graded[name] == pytest.approx(value), name


@pytest.mark.parametrize("jaccard", [None, 0.5])
def test_map_of_several_labels_is_scikit_learns(jaccard: float | None) -> None:
    found = retrieval_metrics(VECTORS, range(COUNT), relevance=Relevance.of_sets(SETS, jaccard=jaccard))
    for query, order in enumerate(orders(VECTORS)):
        overlap = [len(SETS[query] & SETS[j]) / len(SETS[query] | SETS[j]) for j in order]
        right = [share >= (jaccard or 1e-9) for share in overlap]
        expected = average_precision_score(right, -np.arange(len(right))) if any(right) else np.nan
        np.testing.assert_allclose(found.per_query["mAP"][query], expected)


def test_any_numbers_may_be_grades() -> None:
    grades = RANDOM.random((COUNT, COUNT)) * (RANDOM.random((COUNT, COUNT)) < 0.8)
    found = retrieval_metrics(VECTORS, LEAVES, relevance=Relevance.of_matrix(grades), metrics=["H-AP", "ASI"])
    for query, order in enumerate(orders(VECTORS)):
        ranked = grades[query, order].tolist()
        assert found.per_query["H-AP"][query] == pytest.approx(literal_h_ap(ranked))
        assert found.per_query["ASI"][query] == pytest.approx(literal_asi(ranked))


def test_memory_and_equal_scores_change_nothing() -> None:
    vectors = VECTORS[RANDOM.integers(0, 8, COUNT)]  # many are equal
    names = ["H-AP", "ASI", "graded-ndcg@7"]
    options = {"relevance": Relevance.of_paths(PATHS), "metrics": names}
    sorted_rows = retrieval_metrics(vectors, LEAVES, **options)
    little = retrieval_metrics(vectors, LEAVES, memory_budget=1, **options)
    counted = retrieval_metrics(vectors.astype(np.float64), LEAVES, **options)
    for name in names:
        np.testing.assert_array_equal(sorted_rows.per_query[name], little.per_query[name])
        np.testing.assert_allclose(sorted_rows.per_query[name], counted.per_query[name])


def test_intervals_and_paired_tests_leave_out_only_the_queries_that_a_metric_leaves_out() -> None:
    paths = [(0, i) for i in range(60)] + [(1, 99)] * 60  # of the first family no leaf has two images
    found = retrieval_metrics(
        VECTORS,
        [str(path) for path in paths],
        relevance=Relevance.of_paths(paths),
        metrics=["level1-recall@1", "H-AP"],
        confidence=0.95,
    )
    assert np.isnan(found.per_query["recall@1"]).sum() == 60
    low, high = found.intervals["level1-recall@1"]
    alone = bootstrap_intervals({"x": found.per_query["level1-recall@1"]}, [str(path) for path in paths])
    assert (low, high) == alone["x"]
    assert low < found["level1-recall@1"] < high
    gain = paired_difference(found.per_query["H-AP"], found.per_query["level1-recall@1"], [str(p) for p in paths])
    assert gain.mean == pytest.approx(found["H-AP"] - found["level1-recall@1"])


def test_results_of_several_labels_are_right_if_they_share_one() -> None:
    relevance = Relevance.of_sets(SETS)
    task = search_task(VECTORS, range(COUNT), relevance=relevance)
    found = found_lists(task, [3, 7], 5)
    for query in (3, 7):
        order = orders(VECTORS)[query]
        assert found[query].items == order[:5]
        assert found[query].right == [bool(SETS[query] & SETS[j]) for j in order[:5]]
        first = next(place for place, j in enumerate(order) if SETS[query] & SETS[j])
        assert (found[query].first_right, found[query].first_right_item) == (first + 1, order[first])
    worst = worst_queries(np.arange(COUNT, 0, -1.0), VECTORS, range(COUNT), relevance=relevance, count=2)
    assert [each.query for each in worst.queries] == [COUNT - 1, COUNT - 2]
    wrong = sum(not SETS[query] & SETS[order[0]] for query, order in enumerate(orders(VECTORS)))
    everything = worst_queries(np.ones(COUNT), VECTORS, range(COUNT), relevance=relevance, count=COUNT)
    assert sum(each.queries for each in everything.confusions) == wrong


def test_curves_over_pairs_know_several_labels() -> None:
    curves = pair_curves(VECTORS, range(COUNT), relevance=Relevance.of_sets(SETS))
    positive = sum(bool(SETS[i] & SETS[j]) for i in range(COUNT) for j in range(i))
    assert curves.true_accepted[-1] == positive


def test_reranking_keeps_the_grades() -> None:
    options = {"relevance": Relevance.of_paths(PATHS), "metrics": ["H-AP", "ASI"]}
    nothing_moves = KReciprocal(k1=1, k2=1, share=1.0, candidates=10)
    plain = retrieval_metrics(VECTORS, LEAVES, **options)
    found = retrieval_metrics(VECTORS, LEAVES, rerank=nothing_moves, **options)
    assert found["H-AP"] == pytest.approx(plain["H-AP"])
    assert found["ASI"] == pytest.approx(plain["ASI"])


def test_levels_need_a_hierarchy_that_has_them() -> None:
    with pytest.raises(UsageError, match=r"level1-recall@1 needs a hierarchy.*no levels"):
        retrieval_metrics(VECTORS, LEAVES, metrics=["level1-recall@1"])
    with pytest.raises(UsageError, match=r"level4-mAP needs.*it has 3 levels"):
        retrieval_metrics(VECTORS, LEAVES, relevance=Relevance.of_paths(PATHS), metrics=["level4-mAP"])
    with pytest.raises(UsageError, match=r"looks at all levels.*write H-AP"):
        parse_metric("level1-H-AP")
    with pytest.raises(UsageError, match="There is no metric 'level0-mAP'"):
        parse_metric("level0-mAP")
