"""Clustering and spread against the literal reference and scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.metrics import normalized_mutual_info_score

from reference import metrics as reference
from tophit.evaluation import class_spread, clustering_metrics, nmi, pairwise_f1
from tophit.evaluation.kmeans import cluster, inertia
from tophit.evaluation.ward import ward_groups

partitions = st.integers(1, 30).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 5), min_size=n, max_size=n) for _ in range(2)])
)


@settings(max_examples=100, deadline=None)
@given(partitions)
def test_partitions_match_scikit_learn_and_the_reference(pair: tuple[list[int], list[int]]) -> None:
    clusters, classes = pair
    assert nmi(clusters, classes) == pytest.approx(normalized_mutual_info_score(classes, clusters), abs=1e-9)
    tp, fp, fn = reference.pair_counts(clusters, classes)
    assert pairwise_f1(clusters, classes) == pytest.approx(2 * tp / (2 * tp + fp + fn) if tp else 0.0, abs=1e-12)


def many_small_classes(seed: int = 0, classes: int = 300) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), generator.integers(2, 10, classes))
    generator.shuffle(labels)
    rows = generator.standard_normal((classes, 64))[labels] + 1.3 * generator.standard_normal((len(labels), 64))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), labels


@pytest.mark.parametrize("init", ["random", "k-means++"])
def test_many_small_clusters_are_at_least_as_good_as_scikit_learns(init: str) -> None:
    rows, labels = many_small_classes()
    ours = cluster(torch.from_numpy(rows), 300)
    theirs = KMeans(300, init=init, n_init=1, random_state=0).fit(rows)  # type: ignore[arg-type]
    assert nmi(ours, labels) >= normalized_mutual_info_score(labels, theirs.labels_)
    assert inertia(rows, ours) <= theirs.inertia_


@pytest.mark.parametrize("target", [3, 20, 60])
def test_groups_are_those_of_wards_tree(target: int) -> None:
    rows, _ = many_small_classes(4, 40)
    pairs = np.triu_indices(len(rows), 1)  # with all pairs near, the tree is the exact one
    ours = ward_groups(rows, np.ones(len(rows)), *pairs, target)
    theirs = AgglomerativeClustering(target, linkage="ward").fit_predict(rows)
    assert nmi(ours, theirs) == pytest.approx(1)


def test_equal_vectors_weigh_as_often_as_they_occur() -> None:
    rows, _ = many_small_classes(5, 200)
    rows = np.concatenate([rows, np.repeat(rows[:1], 500, axis=0)])
    theirs = KMeans(200, n_init=1, random_state=0).fit(rows)
    ours = cluster(torch.from_numpy(rows), 200)
    assert inertia(rows, ours) <= theirs.inertia_
    assert len(np.unique(ours[-500:])) == 1


def test_few_large_clusters_are_found() -> None:
    generator = np.random.default_rng(1)
    labels = np.arange(600) % 6
    rows = 5 * generator.standard_normal((6, 16))[labels] + generator.standard_normal((600, 16))
    assert clustering_metrics(rows, labels) == pytest.approx({"NMI": 1.0, "F1": 1.0})


def test_clusters_do_not_depend_on_chance_and_restarts_never_hurt() -> None:
    rows, _ = many_small_classes(2, 60)
    vectors = torch.from_numpy(rows)
    first = cluster(vectors, 60, seed=0)
    np.testing.assert_array_equal(first, cluster(vectors, 60, seed=1))
    restarted = cluster(vectors, 60, seed=3, restarts=2)
    np.testing.assert_array_equal(restarted, cluster(vectors, 60, seed=3, restarts=2))
    assert inertia(rows, restarted) <= inertia(rows, first)


def test_inertia_is_the_sum_of_squared_distances_to_the_means() -> None:
    rows = np.asarray([[1.0, 0], [0, 1], [1, 1]])
    assert inertia(rows, np.asarray([0, 0, 1])) == pytest.approx(1.0)


def test_super_classes_are_clustered_apart() -> None:
    rows, labels = many_small_classes(3, 20)
    metrics = clustering_metrics(rows, labels, super_classes=[f"super {label // 10}" for label in labels])
    assert metrics.keys() == {"NMI", "F1", "super-NMI", "super-F1"}
    assert metrics["NMI"] > 0.9


@pytest.mark.parametrize("labels", [[0] * 7, list(range(7))])
def test_one_class_and_classes_of_one_image(labels: list[int]) -> None:
    rows = np.random.default_rng(0).standard_normal((7, 3))
    assert clustering_metrics(rows, labels)["NMI"] == 1.0


def test_all_equal_embeddings_can_be_clustered() -> None:
    metrics = clustering_metrics(np.ones((12, 4)), [0, 1, 2] * 4)
    assert 0 <= metrics["NMI"] <= 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 30))
def test_spread_matches_the_reference(seed: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    rows, labels = generator.standard_normal((count, 4)), [0, 0, 1, *generator.integers(0, 5, count - 3).tolist()]
    intra, inter = reference.spread(rows.tolist(), labels)
    assert class_spread(rows, labels) == pytest.approx({"intra": intra, "inter": inter}, abs=1e-9)


def test_spread_without_pairs_is_nan() -> None:
    rows = np.random.default_rng(0).standard_normal((3, 2))
    assert np.isnan(class_spread(rows, [0, 1, 2])["intra"])
    assert np.isnan(class_spread(rows, [0, 0, 0])["inter"])


@pytest.mark.parametrize(
    "call", [lambda: nmi([0], [0, 1]), lambda: clustering_metrics([[1.0]], [0], super_classes=[0, 1])]
)
def test_lengths_are_checked(call) -> None:
    with pytest.raises(ValueError, match="1 "):
        call()
