"""Batches of confused classes: every image once, near classes together, exact state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tophit.batches import BalancedBatchSampler, ConfusedBatchSampler
from tophit.batches.confused import nearest_of_other_classes

FAMILIES, SISTERS, IMAGES = 6, 4, 4


def family_vectors(seed: int = 0) -> tuple[np.ndarray, list[int]]:
    """Return unit vectors of 6 families of 4 classes each; sisters are much nearer to each other than to others."""
    random = np.random.default_rng(seed)
    family = np.repeat(random.normal(size=(FAMILIES, 16)), SISTERS, axis=0)
    centres = np.repeat(family + 0.2 * random.normal(size=family.shape), IMAGES, axis=0)
    vectors = centres + 0.2 * random.normal(size=centres.shape)
    labels = np.repeat(np.arange(FAMILIES * SISTERS), IMAGES).tolist()
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels


def families_per_batch(sampler: BalancedBatchSampler, labels: list[int]) -> float:
    return float(np.mean([len({labels[row] // SISTERS for row in batch}) for batch in sampler]))


def test_sisters_meet_once_they_are_known_to_be_confused() -> None:
    vectors, labels = family_vectors()
    sampler = ConfusedBatchSampler(labels, classes=4, per_class=4, neighbours=4)
    assert list(sampler) == list(BalancedBatchSampler(labels, 4, 4))  # nothing is known yet
    sampler.mine(vectors, 0)
    assert sampler.near_share == 1
    assert (
        sampler.coverage == "Each epoch shows all 96 images; 100% of the classes have one that is confused with them."
    )
    assert families_per_batch(sampler, labels) < 1.5
    assert families_per_batch(BalancedBatchSampler(labels, 4, 4), labels) > 2.5


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=2, max_size=12),
    classes=st.integers(1, 5),
    per_class=st.integers(2, 4),
    seed=st.integers(0, 100),
)
def test_every_image_comes_once_and_no_class_twice_in_a_batch(sizes, classes, per_class, seed) -> None:
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    sampler = ConfusedBatchSampler(labels, classes, per_class, seed, neighbours=2)
    vectors = np.random.default_rng(seed).normal(size=(len(labels), 4))
    sampler.mine(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 0)
    batches = list(sampler)
    assert len(batches) == len(sampler) == len(BalancedBatchSampler(labels, classes, per_class, seed))
    rows = sorted(row for batch in batches for row in batch)
    assert set(rows) == set(range(len(labels)))
    assert per_class == 2 or len(rows) == len(labels)  # with two per class an odd image may come twice
    for batch in batches:
        counts = np.bincount([labels[row] for row in batch])
        assert counts.max() <= per_class
        assert (counts > 0).sum() <= classes


def test_an_epoch_is_repeated_from_its_state() -> None:
    vectors, labels = family_vectors()
    one, other = (ConfusedBatchSampler(labels, 4, 2, seed=3, mine_every=2) for _ in range(2))
    one.mine(vectors, 4)
    other.load_state_dict(one.state_dict())
    one.epoch = other.epoch = 5
    assert list(one) == list(other)
    assert not other.is_due(4)
    assert other.is_due(6)
    assert not other.is_due(7)


def test_only_images_in_the_way_of_the_own_class_count() -> None:
    """By hand: on a circle, image 0 (class 0) has one of class 1 before its own second image."""
    angles = np.radians([0, 10, 5, 90, 95])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    found = nearest_of_other_classes(vectors, np.asarray([0, 0, 1, 1, 1]), np.asarray([0, 3]), count=1)
    assert found.tolist() == [[2], [-1]]


@pytest.mark.parametrize("count", [1, 3])
def test_neighbours_equal_a_literal_search(count: int) -> None:
    vectors, labels = family_vectors(1)
    found = nearest_of_other_classes(vectors, np.asarray(labels), np.arange(len(labels)), count)
    for query, row in enumerate(found):
        order = sorted((j for j in range(len(labels)) if j != query), key=lambda j: -float(vectors[query] @ vectors[j]))
        others, own = [], 0
        for j in order[: 2 * count]:
            own += labels[j] == labels[query]
            if own >= count:
                break
            if labels[j] != labels[query] and len(others) < count:
                others.append(j)
        assert row.tolist() == others + [-1] * (count - len(others))
