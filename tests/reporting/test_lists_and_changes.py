"""The data of a report against literal definitions: lists, rank changes, won and lost, galleries, confused classes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tophit.evaluation import rank_changes, retrieval_metrics, won_and_lost, worst_queries
from tophit.evaluation.nearest import first_items, found_lists
from tophit.evaluation.scores import search_task
from tophit.losses import TopKPrecisionLoss
from tophit.reporting.confusions import confused_pairs
from tophit.reporting.queries import choose_queries, misplaced_sets, worst_first


def some_vectors(count: int = 90, classes: int = 9, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, count)
    centres = random.normal(size=(classes, 8))
    vectors = (centres[labels] + 1.2 * random.normal(size=(count, 8))).astype(np.float32)
    vectors[5] = vectors[6]  # equal scores
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels


def literal_changes(before: list[int], after: list[int]) -> list[str]:
    """What a person would say of each item of both lists, one at a time."""
    said = []
    for rank, item in enumerate(after, 1):
        if item not in before:
            said.append(f"{item} new")
            continue
        old = before.index(item) + 1
        if old > rank:
            said.append(f"{item} up {old - rank}")
        elif old < rank:
            said.append(f"{item} down {rank - old}")
        else:
            said.append(f"{item} same")
    return said + [f"{item} lost" for item in before if item not in after]


def in_words(item: int, change: int | None) -> str:
    if change is None:
        return f"{item} new"
    return f"{item} up {change}" if change > 0 else f"{item} down {-change}" if change else f"{item} same"


@given(st.permutations(range(12)), st.permutations(range(12)), st.integers(0, 10), st.integers(0, 10))
def test_rank_changes_are_what_a_person_would_say(one: list[int], two: list[int], n: int, m: int) -> None:
    before, after = list(one)[:n], list(two)[:m]
    moved, lost = rank_changes(before, after)
    said = [in_words(item, change) for item, change in zip(after, moved, strict=True)]
    assert said + [f"{item} lost" for item in lost] == literal_changes(before, after)


@pytest.mark.parametrize("budget", [2**30, 2**20])  # the gallery in one span, and in several
def test_lists_are_the_sorted_similarities(budget: int) -> None:
    vectors, labels = some_vectors(2400, 300)
    task = search_task(vectors, labels)
    similarity = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    lists = found_lists(task, [7, 3, 2399], 12, budget)
    assert list(lists) == [7, 3, 2399]
    for query, found in lists.items():
        order = [int(item) for item in np.argsort(-similarity[query], kind="stable") if item != query]
        np.testing.assert_allclose(found.scores, similarity[query][order[:12]], atol=1e-6)
        assert found.items == order[:12]
        assert found.right == [bool(labels[item] == labels[query]) for item in order[:12]]
        ranks = [rank for rank, item in enumerate(order, 1) if labels[item] == labels[query]]
        assert found.first_right == ranks[0]
        assert found.first_right_item == order[ranks[0] - 1]


def test_lists_agree_with_the_worst_queries_of_the_evaluation_in_a_gallery_of_its_own() -> None:
    vectors, labels = some_vectors()
    given = {"embeddings": vectors[:40], "labels": labels[:40], "gallery": vectors[30:], "gallery_labels": labels[30:]}
    own = np.where(np.arange(40) >= 30, np.arange(40) - 30, -1)
    values = retrieval_metrics(**given, own_items=own).per_query["mAP"]
    worst = worst_queries(values, **given, own_items=own, count=15, results=6).queries
    lists = found_lists(search_task(**given, own_items=own), [one.query for one in worst], 6)
    for one in worst:
        found = lists[one.query]
        assert (found.items, found.right, found.first_right) == (one.results, one.correct, one.first_right_rank)


def test_a_query_whose_class_is_not_in_the_gallery_has_no_first_right_answer() -> None:
    vectors, _ = some_vectors()
    task = search_task(vectors[:1], ["a"], vectors[1:4], ["b", "c", "b"])
    found = found_lists(task, [0], 10)[0]
    assert (found.first_right, found.first_right_item, len(found.items)) == (None, None, 3)


def test_misplaced_sets_are_those_of_the_loss() -> None:
    vectors, labels = some_vectors()
    loss = TopKPrecisionLoss(k=4, margin=0.1)
    told = loss.misplaced(torch.from_numpy(vectors), torch.from_numpy(labels))
    found = misplaced_sets(search_task(vectors, labels), [11, 0, 50], 4, 0.1)
    assert any(found[query].belong for query in found)
    for query, sets in found.items():
        assert sets.belong == told.positives[query].tolist()
        assert sets.intrude == told.negatives[query].tolist()


def test_won_and_lost_by_average_precision() -> None:
    mine = np.array([0.5, 0.9, np.nan, 0.2, 0.4, 0.7])
    theirs = np.array([0.5, 0.4, np.nan, 0.9, 0.3, 0.1])
    found = won_and_lost(mine, theirs, np.array(list("aabbcc")))
    assert (found.won, found.lost, found.equal) == ([5, 1, 4], [3], 1)
    assert found.difference is not None
    assert found.difference.mean == pytest.approx((0 + 0.5 - 0.7 + 0.1 + 0.6) / 5)
    assert found.difference.low <= found.difference.mean <= found.difference.high


def test_no_query_with_an_answer_has_no_difference() -> None:
    nothing = np.full(3, np.nan)
    found = won_and_lost(nothing, nothing, np.array(["a", "b", "c"]))
    assert (found.won, found.lost, found.equal, found.difference) == ([], [], 0, None)


def test_galleries_take_one_query_of_a_class_while_there_are_classes() -> None:
    values = np.array([1.0, 1.0, 1.0, 0.1, 0.0, np.nan, 0.2])
    classes = np.array([0, 1, 1, 2, 2, 3, 1])
    chosen = choose_queries(values, classes, 3)
    assert chosen.best == [1, 0, 3]  # class 1 has three queries, class 0 one
    assert chosen.worst == [4, 6, 0]
    assert len({classes[query] for query in chosen.random}) == 3
    assert chosen.random == choose_queries(values, classes, 3).random
    assert choose_queries(values, classes, 5).worst == [4, 3, 6, 0, 1]  # of three classes, then any
    assert worst_first(values).tolist() == [4, 3, 6, 0, 1, 2]


def test_confused_classes_are_counted_in_both_directions() -> None:
    vectors, labels = some_vectors(120, 6)
    task = search_task(vectors, labels)
    nearest = first_items(task, 1)[0][:, 0]
    counts: dict[frozenset[int], int] = {}
    for query, item in enumerate(nearest):
        pair = frozenset((int(labels[query]), int(labels[item])))
        if len(pair) == 2:
            counts[pair] = counts.get(pair, 0) + 1
    names = [(str(label),) for label in labels]
    found = confused_pairs(names, names, nearest, 4)
    assert [pair.queries for pair in found] == sorted(counts.values(), reverse=True)[:4]
    for pair in found:
        assert counts[frozenset((int(pair.first), int(pair.second)))] == pair.queries == len(pair.examples)
        assert pair.first_for_second >= pair.second_for_first
        assert all(int(nearest[query]) == item for query, item in pair.examples)
