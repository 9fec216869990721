"""Properties of the top-k precision loss: its bounds, its sets, ties, and what optimising it does."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import ranking as reference
from torch.nn import functional

from tophit.losses import TopKPrecisionLoss
from tophit.losses.topk_precision import misplaced_pairs, topk_precision

# Similarities from a coarse grid, so that ties are common.
lists = st.lists(st.tuples(st.integers(-10, 10).map(lambda i: i / 10), st.booleans()), min_size=1, max_size=14)


def one_query(pairs):
    s = torch.tensor([[value for value, _ in pairs]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[positive for _, positive in pairs]])
    return s, y


@settings(max_examples=300, deadline=None)
@given(pairs=lists, k=st.integers(1, 16), margin=st.sampled_from([0.0, 0.1, 0.25]))
def test_sets_and_value_equal_the_literal_definition(pairs, k, margin):
    s, y = one_query(pairs)
    p, n, _ = reference.topk_sets(s[0].tolist(), y[0].int().tolist(), k, margin)
    found = misplaced_pairs(s, y, ~y, k, margin)
    assert found.positives.tolist() == p
    assert found.negatives.tolist() == n
    value = topk_precision(s, y, ~y, k, margin).sum()
    assert value.item() == pytest.approx(reference.topk_precision(s[0].tolist(), y[0].int().tolist(), k, margin))
    gradient = torch.autograd.grad(value, s)[0]
    assert gradient.sum().item() == 0
    assert len(p) == len(n) == int(gradient.abs().sum()) // 2


def random_lists(count, n, seed):
    generator = torch.Generator().manual_seed(seed)
    s = torch.rand(count, n, generator=generator, dtype=torch.float64) * 2 - 1
    y = torch.rand(count, n, generator=generator) < torch.rand(count, 1, generator=generator)
    return s, y


@pytest.mark.parametrize("k", [1, 3, 5, 8])
def test_theorem_1_bounds_the_negatives_in_the_top_k(k):
    """On 20 000 random lists: loss >= margin * (negatives in the top k) - margin * (k - n+)+, in both cases."""
    margin = 0.1
    s, y = random_lists(20_000, 12, seed=k)
    loss = topk_precision(s, y, ~y, k, margin)
    wrong = (~y).gather(1, s.argsort(dim=1, descending=True, stable=True)[:, :k]).sum(dim=1)
    unavoidable = (k - y.sum(dim=1)).clamp(min=0)
    bound = margin * (wrong - unavoidable)
    assert bool((loss >= bound - 1e-12).all())
    assert bool((loss > bound + 1e-3).any())
    assert bool((bound > 0).any())


def test_theorem_2_a_gap_of_the_margin_makes_the_loss_zero_and_the_top_k_ideal():
    k, margin = 4, 0.1
    s, y = random_lists(20_000, 9, seed=7)
    s = torch.where(y, s + 0.7, s)
    positives = y.sum(dim=1)
    chosen = (positives >= 1) & (positives <= k)
    worst_positive = s.masked_fill(~y, torch.inf).amin(dim=1)
    negatives = s.masked_fill(y, -torch.inf).sort(dim=1, descending=True).values
    rival = negatives.gather(1, (k - positives).clamp(0, 8)[:, None])[:, 0]  # the (k - n+ + 1)-th negative
    apart = chosen & (worst_positive - rival >= margin)
    assert 100 < int(apart.sum()) < int(chosen.sum())
    assert topk_precision(s, y, ~y, k, margin)[apart].abs().max().item() == 0
    right = y.gather(1, s.argsort(dim=1, descending=True, stable=True)[:, :k]).sum(dim=1)
    assert bool((right[apart] == positives[apart]).all())


@settings(max_examples=50, deadline=None)
@given(pairs=lists, k=st.integers(1, 8), shift=st.floats(-1, 1))
def test_a_constant_on_all_similarities_changes_nothing(pairs, k, shift):
    s, y = one_query(pairs)
    s = s.detach() + 1e-3 * torch.arange(len(pairs))  # no ties, which rounding could turn
    before = topk_precision(s, y, ~y, k, 0.1)
    torch.testing.assert_close(topk_precision(s + shift, y, ~y, k, 0.1), before, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("classes", "each", "ceiling"), [(4, 10, 1.0), (12, 3, 0.4)])
def test_optimising_free_vectors_makes_the_first_page_right(classes, each, ceiling):
    """SPEC 000, test 5: from chance to the best possible precision@5, and the loss to 0."""
    labels = torch.arange(classes).repeat_interleave(each)
    x = torch.randn(len(labels), 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = TopKPrecisionLoss()
    optimizer = torch.optim.Adam([x], lr=0.05)
    before = precision_at_5(x, labels)
    for _ in range(300):
        optimizer.zero_grad()
        loss(x, labels).backward()
        optimizer.step()
    assert before < 0.5 * ceiling
    assert precision_at_5(x, labels) == pytest.approx(ceiling)
    assert loss(x, labels).item() == 0


def precision_at_5(x, labels):
    unit = functional.normalize(x.detach(), dim=1)
    nearest = (unit @ unit.T).fill_diagonal_(-2).topk(5, dim=1).indices
    return (labels[nearest] == labels[:, None]).float().mean().item()


def test_misplaced_sets_are_those_of_the_loss():
    labels = torch.tensor([0, 0, 1, 1, 1, 2])
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    loss = TopKPrecisionLoss(k=2)
    positives, negatives = loss.misplaced(x, labels)
    unit = functional.normalize(x, dim=1)
    total = 0.0
    for q, (p, n) in enumerate(zip(positives, negatives, strict=True)):
        assert len(p) == len(n)
        assert bool((labels[p] == labels[q]).all())
        assert bool((labels[n] != labels[q]).all())
        total += ((unit[n] @ unit[q] + 0.1).sum() - (unit[p] @ unit[q]).sum()).item()
    assert loss(x, labels).item() == pytest.approx(total)
    assert total > 0


@pytest.mark.parametrize("arguments", [{"k": 0}, {"reduction": "max"}])
def test_wrong_settings_are_named(arguments):
    with pytest.raises(ValueError, match="must be"):
        TopKPrecisionLoss(**arguments)
