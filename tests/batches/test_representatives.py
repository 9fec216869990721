"""Batches around representatives: what stays within a projection, what changes, and which classes are mined."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tophit.batches import RepresentativeBatchSampler, projection_steps
from tophit.batches.hard_classes import ClassBank
from tophit.errors import UsageError

CASES = {
    case["id"]: case
    for case in json.loads((Path(__file__).parent.parent / "golden" / "002_profs.json").read_text())["cases"]
}
READINGS = (False, True, "seeds", "pool", "chain")
LABELS = st.lists(st.integers(1, 7), min_size=1, max_size=12).map(
    lambda sizes: [f"class {i}" for i, size in enumerate(sizes) for _ in range(size)]
)


@pytest.mark.parametrize("row", CASES["M_table"]["outputs"]["rows"], ids=lambda r: f"{r['dataset']}-{r['I']}")
def test_steps_of_a_projection(row):
    assert projection_steps(row["L"], row["B"], row["I"]) == row["M_with_p_capped_at_1"]
    if row["B"] <= row["I"] * row["L"]:
        assert row["M"] == row["M_with_p_capped_at_1"]


@settings(max_examples=100, deadline=None)
@given(LABELS, st.integers(1, 6), st.integers(1, 5), st.sampled_from(READINGS), st.integers(0, 3))
def test_every_batch_has_its_classes_with_the_representatives_of_the_projection(labels, classes, per_class, hncm, seed):
    sampler = RepresentativeBatchSampler(labels, classes, per_class, seed, rho=2, hncm=hncm)
    sizes = Counter(labels)
    random = np.random.default_rng(seed)
    before: dict[str, int] = {}
    for projection in range(4):
        representatives: dict[str, int] = {}
        for step in range(1, sampler.steps_per_projection + 1):
            batch = sampler.next_batch()
            assert (sampler.projection, sampler.step) == (projection, step)
            assert len(set(batch)) == len(batch)
            groups = Counter(labels[row] for row in batch)
            assert len(groups) == min(classes, len(sizes))
            assert all(count == min(per_class, sizes[label]) for label, count in groups.items())
            rows = np.array(batch)[sampler.is_representative(np.array(batch))]
            assert sorted(labels[row] for row in rows) == sorted(groups)
            for row in rows.tolist():
                assert representatives.setdefault(labels[row], row) == row
            sampler.update(rows, random.normal(size=(len(rows), 3)))
        everyone = {labels[row]: int(row) for row in sampler.representatives}
        assert set(everyone) == set(sizes)
        assert all(everyone[label] == row for label, row in representatives.items())
        assert all(everyone[label] != row or sizes[label] == 1 for label, row in before.items())
        before = everyone


def test_representatives_and_fresh_images_show_the_whole_class():
    labels = [i // 6 for i in range(60)]
    sampler = RepresentativeBatchSampler(labels, 5, 3, rho=2)
    leading, shown = Counter(), Counter()
    for _ in range(6 * sampler.steps_per_projection):
        shown.update(sampler.next_batch())
        if sampler.step == 1:
            leading.update(sampler.representatives.tolist())
    assert set(leading.values()) == {1}  # six projections, six images a class
    assert len(shown) == 60


def test_without_mining_each_class_is_used_rho_times_in_a_projection():
    sampler = RepresentativeBatchSampler([i // 4 for i in range(120)], 5, 2, rho=6)
    used = Counter(sampler.class_of_row[row] for _ in range(36) for row in sampler.next_batch()[::2])
    assert sampler.steps_per_projection == 36
    assert set(used.values()) == {6}


def test_an_epoch_is_as_many_images_as_there_are():
    sampler = RepresentativeBatchSampler([i // 4 for i in range(50)], 5, 4)
    assert len(sampler) == len(list(sampler)) == 3


def batches(sampler, count):
    """Yield the next batches, with embeddings stored after each."""
    for _ in range(count):
        batch = sampler.next_batch()
        rows = np.array(batch)[sampler.is_representative(np.array(batch))]
        sampler.update(rows, np.random.default_rng(rows).normal(size=(len(rows), 4)))
        yield batch


@pytest.mark.parametrize("hncm", READINGS)
def test_a_saved_stream_goes_on_exactly(hncm):
    labels = [i // 3 for i in range(31)]
    whole = RepresentativeBatchSampler(labels, 4, 2, seed=5, rho=2, hncm=hncm)
    expected = list(batches(whole, 60))
    for stop in (1, 7, 23):
        first = RepresentativeBatchSampler(labels, 4, 2, seed=5, rho=2, hncm=hncm)
        list(batches(first, stop))
        state = first.state_dict()
        list(batches(first, 9))  # what comes later must not change what was saved
        second = RepresentativeBatchSampler(labels, 4, 2, seed=5, rho=2, hncm=hncm)
        second.load_state_dict(state)
        assert list(batches(second, 60 - stop)) == expected[stop:]
    other = RepresentativeBatchSampler(labels, 4, 2, seed=6, rho=2, hncm=hncm)
    assert list(batches(other, 60)) != expected


def test_a_stream_of_before_the_readings_goes_on_as_a_chain():
    labels = [i // 3 for i in range(31)]
    chain = RepresentativeBatchSampler(labels, 4, 2, rho=2, hncm="chain")
    list(batches(chain, 3))
    old = {name: value for name, value in chain.state_dict().items() if name not in ("reading", "class_use")}
    new = RepresentativeBatchSampler(labels, 4, 2, rho=2, hncm=True)
    new.load_state_dict(old)
    assert list(batches(new, 30)) == list(batches(chain, 30))
    assert new.reading == "chain"  # and so after the next stop
    last = RepresentativeBatchSampler(labels, 4, 2, rho=2, hncm=True)
    last.load_state_dict(new.state_dict())
    assert last.reading == "chain"


def test_the_use_of_classes_in_a_projection_is_counted():
    sampler = RepresentativeBatchSampler([i // 3 for i in range(31)], 4, 2, rho=2, hncm=True)
    assert sampler.class_use is None
    for _ in range(3):
        used = Counter()
        for _ in range(sampler.steps_per_projection):
            used.update({sampler.class_of_row[row] for row in next(batches(sampler, 1))})
            assert sampler.class_use.tolist() == [used[number] for number in range(11)]


def filled(vectors):
    bank = ClassBank(len(vectors))
    bank.store(np.arange(len(vectors)), vectors)
    return bank


def test_greedy_class_mining_is_the_golden_one():
    case = CASES["hncm_greedy"]
    bank = filled(np.array(case["inputs"]["bank"]))
    for seed, selected in case["outputs"]["selected"].items():
        assert bank.near(int(seed), case["params"]["classes_per_batch"]) == selected
    order = CASES["hncm_order"]
    for seed, classes in order["outputs"]["order"].items():
        assert filled(np.array(order["inputs"]["bank"])).near(int(seed), 2)[1] == classes[0]


def test_many_classes_are_searched_in_one_pass_and_planted_ones_are_found():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(20_000, 16)).astype(np.float32)
    planted = [11, 7_000, 19_999, 3]
    for step, number in enumerate(planted):  # a chain: each is near to the one before, farther from the seed
        vectors[number] = vectors[planted[0]] + 0.01 * step
    assert filled(vectors).near(11, 4) == [11, 7_000, 19_999, 3]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 10**6))
def test_greedy_selection_is_the_literal_one(classes, count, seed):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(classes, 3))
    bank = ClassBank(classes)
    known = np.flatnonzero(random.random(classes) < 0.7)
    bank.store(known, vectors[known])
    start = int(random.integers(classes))
    selected = [start]
    while len(selected) < count and set(known.tolist()) - set(selected):
        rest = [k for k in known.tolist() if k not in selected]
        selected.append(min(rest, key=lambda k: (min(np.linalg.norm(vectors[k] - vectors[s]) for s in selected), k)))
    assert bank.near(start, count) == (selected if start in known else [])


@pytest.mark.parametrize("hncm", ["seeds", "pool", "chain"])
def test_classes_without_an_embedding_are_dealt_until_they_have_one(hncm):
    labels = [i // 2 for i in range(40)]
    sampler = RepresentativeBatchSampler(labels, 4, 2, hncm=hncm)

    def next_classes():
        return sampler.class_of_row[sampler.next_batch()[::2]].tolist()

    first = {number for _ in range(4) for number in next_classes()}  # nothing is stored: plain dealing
    if hncm != "seeds":
        assert len(first) == 16
    next_classes()
    sampler.update(sampler.representatives, np.repeat(np.arange(10.0), 2)[:, None])  # pairs of near classes
    mined = [next_classes() for _ in range(20)]
    assert all(len(set(classes)) == 4 for classes in mined)
    twins = sum(classes[1] == classes[0] ^ 1 for classes in mined)  # its twin comes first, if the pool has it
    assert twins > 10 if hncm == "pool" else twins == 20


def test_each_seed_has_its_nearest_classes():
    bank = filled(np.array([0.0, 10, 20, 1, 11, 21, 2.5, 12.5, 22.5, 50])[:, None])
    assert bank.neighbours([0, 1, 2], 6) == [3, 4, 5, 6, 7, 8]
    assert bank.neighbours([0, 3], 2) == [6, 1]  # never a seed, and none twice
    assert bank.neighbours([0], 2, without=np.arange(10) == 3) == [6, 1]
    assert len(bank.neighbours([0, 1], 100)) == 8
    assert ClassBank(5).neighbours([0, 1], 2) == []


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 10**6))
def test_selection_in_a_pool_is_the_literal_one(classes, count, seed):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(classes, 3))
    bank = ClassBank(classes)
    known = np.flatnonzero(random.random(classes) < 0.7)
    bank.store(known, vectors[known])
    chosen, pool = np.split(random.permutation(classes), [min(3, classes)])
    near = [k for k in chosen.tolist() if k in known]
    expected: list[int] = []
    rest = sorted(set(pool.tolist()) & set(known.tolist())) if near else []
    for _ in range(min(count, len(rest))):
        best = min(rest, key=lambda k: min(np.linalg.norm(vectors[k] - vectors[s]) for s in near + expected))
        expected.append(best)
        rest.remove(best)
    assert bank.nearest_of(pool, chosen.tolist(), count) == expected


def test_nothing_to_draw_from_is_refused():
    for arguments in (([], 2, 2), ([1, 1], 0, 2), ([1, 1], 2, 0)):
        with pytest.raises(UsageError):
            RepresentativeBatchSampler(*arguments)
    with pytest.raises(UsageError, match="rho above 0"):
        RepresentativeBatchSampler([1, 1], 1, 2, rho=0)
    with pytest.raises(UsageError, match=r"one of chain, seeds, pool: got 'tree'"):
        RepresentativeBatchSampler([1, 1], 1, 2, hncm="tree")


def test_state_is_plain_enough_for_a_checkpoint(tmp_path):
    sampler = RepresentativeBatchSampler([0, 0, 1, 1], 2, 2, hncm=True)
    sampler.next_batch()
    torch.save(sampler.state_dict(), tmp_path / "state.pt")
    sampler.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
