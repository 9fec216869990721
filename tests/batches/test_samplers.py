from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tophit.batches import BalancedBatchSampler, RandomBatchSampler
from tophit.errors import UsageError

LABELS = st.lists(st.integers(1, 12), min_size=1, max_size=30).map(
    lambda sizes: [f"class {i}" for i, size in enumerate(sizes) for _ in range(size)]
)


def products_like_labels() -> list[int]:
    """11,318 classes of 2 to 12 images, as the training half of Stanford Online Products."""
    sizes = np.random.default_rng(0).integers(2, 13, 11_318)
    return np.repeat(np.arange(len(sizes)) * 10**15, sizes).tolist()


@settings(max_examples=200, deadline=None)
@given(LABELS, st.integers(1, 10), st.integers(1, 6), st.integers(0, 3))
def test_an_epoch_shows_every_image_and_none_twice_in_a_batch(
    labels: list[str], classes: int, per_class: int, epoch: int
) -> None:
    sampler = BalancedBatchSampler(labels, classes, per_class, seed=7)
    sampler.epoch = epoch
    batches = list(sampler)
    assert len(batches) == len(sampler)
    shown = Counter(row for batch in batches for row in batch)
    assert set(shown) == set(range(len(labels)))
    sizes = Counter(labels)
    for batch in batches:
        assert len(set(batch)) == len(batch)
        groups = Counter(labels[row] for row in batch)
        assert len(groups) <= classes
        assert max(groups.values()) <= per_class
        if per_class > 1:
            assert all(count > 1 or sizes[label] == 1 for label, count in groups.items())
    repeats = sum(shown.values()) - len(labels)
    odd_classes = sum(size % 2 for size in sizes.values())
    assert repeats <= (odd_classes if per_class == 2 else 0)


@settings(max_examples=100, deadline=None)
@given(LABELS, st.integers(1, 10), st.integers(1, 6))
def test_when_small_classes_may_repeat_every_group_is_full(labels: list[str], classes: int, per_class: int) -> None:
    sampler = BalancedBatchSampler(labels, classes, per_class, repeat_small_classes=True)
    sizes = Counter(labels)
    for batch in sampler:
        groups = Counter(labels[row] for row in batch)
        assert set(groups.values()) == {per_class}
        different = Counter(labels[row] for row in set(batch))
        assert all(different[label] == min(per_class, sizes[label]) for label in groups)


@pytest.mark.parametrize(("classes", "per_class"), [(32, 4), (56, 2), (16, 7)])
def test_coverage_and_repeats_on_labels_like_stanford_online_products(classes: int, per_class: int) -> None:
    labels = products_like_labels()
    sampler = BalancedBatchSampler(labels, classes, per_class)
    batches = list(sampler)
    shown = Counter(row for batch in batches for row in batch)
    assert len(shown) == len(labels)  # coverage 100%
    assert sum(len(batch) - len(set(batch)) for batch in batches) == 0  # no repeats inside a batch
    assert sum(shown.values()) <= len(labels) * (1.07 if per_class == 2 else 1)
    full = sum(len({labels[row] for row in batch}) == classes for batch in batches)
    assert full > 0.9 * len(batches)


@pytest.mark.parametrize("kind", ["balanced", "random"])
def test_seed_and_epoch_fix_the_batches(kind: str) -> None:
    labels = [i // 5 for i in range(100)]

    def batches(seed: int, epoch: int) -> list[list[int]]:
        sampler = BalancedBatchSampler(labels, 4, 3, seed) if kind == "balanced" else RandomBatchSampler(100, 12, seed)
        sampler.epoch = epoch
        return list(sampler)

    assert batches(1, 2) == batches(1, 2)
    assert batches(1, 2) != batches(1, 3)
    assert batches(1, 2) != batches(2, 2)


def test_random_batches_show_every_image_once() -> None:
    sampler = RandomBatchSampler(10, 4)
    batches = list(sampler)
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert len(sampler) == 3
    assert sorted(row for batch in batches for row in batch) == list(range(10))


def test_batches_of_nothing_are_refused() -> None:
    for make in (
        lambda: BalancedBatchSampler([], 2, 2),
        lambda: BalancedBatchSampler([1], 0, 2),
        lambda: RandomBatchSampler(0, 2),
        lambda: RandomBatchSampler(2, 0),
    ):
        with pytest.raises(UsageError):
            make()
