"""Batches balanced over several labels, and batches of siblings in a hierarchy."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tophit.batches import LabelBatchSampler, SiblingBatchSampler
from tophit.errors import UsageError

SETS = st.lists(st.sets(st.integers(0, 6), min_size=1, max_size=4).map(sorted), min_size=1, max_size=40)
PATHS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=60)
EPOCHS = (0, 1, 5)


def epoch_of(sampler, epoch: int) -> list[list[int]]:
    sampler.epoch = epoch
    return list(sampler)


@settings(max_examples=100, deadline=None)
@given(SETS, st.integers(1, 8), st.integers(1, 5))
def test_an_epoch_shows_every_image_and_its_groups_share_a_label(sets, classes: int, per_class: int) -> None:
    sampler = LabelBatchSampler(sets, classes, per_class, seed=3)
    for epoch in EPOCHS:
        batches = epoch_of(sampler, epoch)
        assert len(batches) == len(sampler)
        assert {row for batch in batches for row in batch} == set(range(len(sets)))
        assert all(len(set(batch)) == len(batch) <= classes * per_class for batch in batches)
    assert epoch_of(sampler, 1) == epoch_of(LabelBatchSampler(sets, classes, per_class, seed=3), 1)


def test_rare_labels_lead_as_many_images_as_they_can_and_every_image_meets_its_label() -> None:
    random = np.random.default_rng(0)
    sets = [["common", *(["rare"] if row < 12 else []), *(["half"] if random.random() < 0.5 else [])]
            for row in range(120)]  # fmt: skip
    sampler = LabelBatchSampler(sets, classes=3, per_class=4)
    led = Counter(sampler.leading)
    assert led["rare"] == 12
    assert abs(led["common"] - led["half"]) < 30
    for batch in epoch_of(sampler, 2):
        assert all(any(set(sets[row]) & set(sets[other]) for other in batch if other != row) for row in batch)
    assert sampler.coverage == f"Each epoch shows all 120 images: 3 labels lead 12 to {max(led.values())} of them each."


def test_which_label_leads_an_image_changes_with_the_epoch() -> None:
    sampler = LabelBatchSampler([["a", "b"]] * 40, classes=2, per_class=4)
    groups = []
    for epoch in (0, 1):
        epoch_of(sampler, epoch)
        groups.append(frozenset(frozenset(rows) for rows in sampler.rows_of_class))
    assert groups[0] != groups[1]


@settings(max_examples=100, deadline=None)
@given(PATHS, st.integers(1, 8), st.integers(1, 4), st.integers(1, 4))
def test_batches_of_siblings_show_every_image(paths, classes: int, per_class: int, families: int) -> None:
    sampler = SiblingBatchSampler(paths, max(classes, families), per_class, families, seed=1)
    for epoch in EPOCHS:
        batches = epoch_of(sampler, epoch)
        assert len(batches) == len(sampler)
        assert {row for batch in batches for row in batch} == set(range(len(paths)))
        for batch in batches:
            assert len(set(batch)) == len(batch)
            assert max(Counter(paths[row] for row in batch).values()) <= per_class
    assert epoch_of(sampler, 1) == epoch_of(
        SiblingBatchSampler(paths, max(classes, families), per_class, families, 1), 1
    )


def test_the_leaves_of_a_batch_come_in_families() -> None:
    paths = [(family, leaf) for family in range(10) for leaf in range(6) for _ in range(8)]
    sampler = SiblingBatchSampler(paths, classes=8, per_class=4, families=2)
    for batch in epoch_of(sampler, 0):
        leaves = {paths[row] for row in batch}
        assert len(leaves) <= 8
        of_family = Counter(family for family, _ in leaves)
        assert min(of_family.values()) >= 2
    assert sampler.coverage == (
        "Each epoch shows all 480 images of 60 leaves in 10 families; 100% of a batch's leaves meet a sibling in it."
    )


def test_more_families_than_classes_are_refused() -> None:
    with pytest.raises(UsageError, match="9 families need at least as many classes, not 8"):
        SiblingBatchSampler([("a", "b")], classes=8, families=9)
