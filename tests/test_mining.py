"""Miners: what they choose against literal loops and pytorch-metric-learning, and what they never do."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import pairs as reference

from tophit.errors import UsageError
from tophit.mining import mine
from tophit.registry import names

strategies = pytest.mark.parametrize("strategy", [name for name in names("miner") if name != "none"])


def batch(labels, dim=5, seed=0, spread=0.7):
    """Classes that overlap a little."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor(labels, dtype=torch.long)
    centres = torch.randn(64, dim, generator=generator, dtype=torch.float64)
    return centres[labels % 64] + spread * torch.randn(len(labels), dim, generator=generator).double(), labels


def rows(triplets):
    return [tuple(row) for row in torch.stack(triplets, dim=1).tolist()]


def unit_rows(x):
    return [reference.unit(v) for v in x.tolist()]


LABELS = st.lists(st.integers(0, 4), max_size=14)


@strategies
@settings(max_examples=30, deadline=None)
@given(labels=LABELS, seed=st.integers(0, 1000))
def test_triplets_are_triplets_and_nothing_crashes(strategy, labels, seed):
    x, labels = batch(labels, seed=seed)
    for a, p, n in rows(mine(x, labels, strategy)):
        assert a != p
        assert labels[a] == labels[p] != labels[n]


@settings(max_examples=30, deadline=None)
@given(labels=LABELS, seed=st.integers(0, 1000))
def test_hard_semi_hard_and_balanced_hard_are_the_literal_choice(labels, seed):
    x, labels = batch(labels, seed=seed)
    u, names = unit_rows(x), labels.tolist()
    window = reference.semi_hard(u, names, 0.2)
    assert sorted(rows(mine(x, labels, "semi-hard", every=True))) == window
    nearest = {}
    for a, p, n in sorted(window, key=lambda t: (reference.dist(u[t[0]], u[t[2]]), t[2])):
        nearest.setdefault((a, p), n)
    assert sorted(rows(mine(x, labels, "semi-hard"))) == sorted((a, p, n) for (a, p), n in nearest.items())
    exemplars = reference.hard_exemplars(u, names, range(len(names)))
    assert rows(mine(x, labels, "balanced-hard")) == exemplars
    every = reference.all_triplets(names)
    hard = []
    for a in sorted({t[0] for t in every}):
        p = max({t[1] for t in every if t[0] == a}, key=lambda p: (reference.dist(u[a], u[p]), -p))
        n = min({t[2] for t in every if t[0] == a}, key=lambda n: (reference.dist(u[a], u[n]), n))
        hard.append((a, p, n))
    assert rows(mine(x, labels, "hard")) == hard


def test_soft_hard_draws_from_the_hard_ones_only():
    x, labels = batch([i // 4 for i in range(24)], spread=1.5)
    u = unit_rows(x)
    seen = set()
    for seed in range(30):
        chosen = rows(mine(x, labels, "soft-hard", generator=torch.Generator().manual_seed(seed)))
        assert len({a for a, _, _ in chosen}) == len(chosen)
        seen.update(chosen)
    for a, p, n in seen:
        negatives = [j for j in range(24) if labels[j] != labels[a]]
        positives = [j for j in range(24) if labels[j] == labels[a] and j != a]
        assert reference.dist(u[a], u[p]) > min(reference.dist(u[a], u[j]) for j in negatives)
        assert reference.dist(u[a], u[n]) < max(reference.dist(u[a], u[j]) for j in positives)
    assert len(seen) > 24  # different seeds draw different ones


def test_uniform_draws_every_negative_equally_often():
    x, labels = batch([0, 0] + [1] * 8)
    generator = torch.Generator().manual_seed(0)
    a, _, n = mine(x, labels, "uniform", generator=generator, anchors=torch.zeros(1000, dtype=torch.long))
    assert a.tolist() == [0] * 1000
    counts = torch.bincount(n, minlength=10)
    assert counts[:2].sum() == 0
    assert (counts[2:] - 125).abs().max() < 50  # five standard deviations


def test_distance_weighted_draws_by_the_inverse_density():
    """One anchor, one positive, many negatives: the frequencies are the weights of Wu et al., Sec. 4."""
    generator = torch.Generator().manual_seed(3)
    x = torch.nn.functional.normalize(torch.randn(12, 4, generator=generator, dtype=torch.float64), dim=1)
    labels = torch.tensor([0, 0] + [1] * 10)
    d = (x[2:] - x[0]).norm(dim=1)
    clamped = d.clamp(min=0.5)
    weights = clamped ** (2 - 4) * (1 - clamped**2 / 4) ** (-(4 - 3) / 2) * (d < 1.4)
    anchors = torch.zeros(20000, dtype=torch.long)
    counts = torch.bincount(mine(x, labels, "distance-weighted", generator=generator, anchors=anchors)[2], minlength=12)
    torch.testing.assert_close(counts[2:].double() / 20000, weights / weights.sum(), atol=0.015, rtol=0)


@strategies
def test_a_seed_fixes_the_choice_and_torchs_own_seed_does_too(strategy):
    x, labels = batch([i // 4 for i in range(40)])
    first, second = (mine(x, labels, strategy, generator=torch.Generator().manual_seed(5)) for _ in range(2))
    torch.testing.assert_close(first, second)
    results = []
    for _ in range(2):
        torch.manual_seed(1)
        results.append(mine(x, labels, strategy))
    torch.testing.assert_close(*results)


@strategies
def test_large_batches_and_high_dimensions_hold(strategy):
    """4096 vectors of 512 dimensions, where the peer's distance-weighted miner fails."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4096) // 4
    centres = torch.randn(1024, 512, generator=generator)
    x = centres[labels] + torch.randn(4096, 512, generator=generator)
    a, p, n = mine(x, labels, strategy, generator=generator)
    assert (labels[a] == labels[p]).all()
    assert (labels[a] != labels[n]).all()
    if strategy in ("uniform", "balanced-hard"):
        assert len(a) == 4096 * 3
    if strategy == "distance-weighted":  # all but anchors whose negatives are all beyond 1.4
        assert len(a) > 4096


@strategies
def test_chunks_change_nothing(strategy, monkeypatch):
    x, labels = batch([i // 3 for i in range(60)])
    whole = mine(x, labels, strategy, generator=torch.Generator().manual_seed(2))
    monkeypatch.setattr("tophit.mining._CHUNK", 60 * 60)
    torch.testing.assert_close(mine(x, labels, strategy, generator=torch.Generator().manual_seed(2)), whole)
    if strategy in ("hard", "semi-hard", "balanced-hard"):  # the others draw in the order of the chunks
        monkeypatch.setattr("tophit.mining._CHUNK", 7)
        torch.testing.assert_close(mine(x, labels, strategy), whole)


def test_the_peers_choose_the_same():
    from pytorch_metric_learning import distances, miners

    x, labels = batch([i // 4 for i in range(64)], dim=16)
    squared = miners.TripletMarginMiner(0.2, "semihard", distance=distances.LpDistance(power=2))
    assert sorted(rows(mine(x, labels, "semi-hard", every=True))) == sorted(rows(squared(x, labels)))
    assert sorted(rows(mine(x, labels, "hard"))) == sorted(rows(miners.BatchHardMiner()(x, labels)))


def test_bfloat16_autocast_and_equal_vectors():
    x, labels = torch.ones(6, 3), torch.tensor([0, 0, 0, 1, 1, 1])
    with torch.autocast("cpu", torch.bfloat16):
        assert rows(mine(x, labels, "hard")) == [(0, 1, 3), (1, 0, 3), (2, 0, 3), (3, 4, 0), (4, 3, 0), (5, 3, 0)]
    assert len(mine(x, labels, "semi-hard")[0]) == 0


def test_wrong_input_is_named():
    x, labels = batch([0, 0, 1])
    with pytest.raises(UsageError, match=r"no miner 'soft'\. .*Choices: none, uniform, hard, semi-hard"):
        mine(x, labels, "soft")
    with pytest.raises(UsageError, match=r"not \(3, 5\) and \(2,\)"):
        mine(x, labels[:2])
