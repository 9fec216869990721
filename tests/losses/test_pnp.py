"""Properties of the PNP losses and Smooth-AP: limits, gradients, variants of one's own."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import ranking as reference

from tophit.evaluation import class_spread
from tophit.losses import PNPLoss, SmoothAPLoss, make_variant
from tophit.losses.pnp import VARIANTS, pnp
from tophit.losses.soft_rank import soft_rank

NAMES = list(VARIANTS)


def batch(labels, seed=0, dim=6):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64, requires_grad=True)
    return x, torch.tensor(labels)


@pytest.mark.parametrize("variant", NAMES)
def test_equals_pytorch_metric_learning_with_self(variant):
    from pytorch_metric_learning.losses import PNPLoss as PeerLoss

    x, labels = batch([0, 1, 1, 2, 0, 2, 2, 1, 0, 2, 3, 3])
    ours = PNPLoss(variant, alpha=2, b=4, include_self=True)(x, labels)
    theirs = PeerLoss(variant=variant, alpha=2, b=4)(x, labels)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(ours, x), torch.autograd.grad(theirs, x), rtol=1e-9, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(labels=st.lists(st.integers(0, 3), min_size=3, max_size=12), seed=st.integers(0, 1000))
def test_cold_counts_are_integers_and_smooth_ap_is_average_precision(labels, seed):
    x, tensor = batch(labels, seed)
    s = reference.similarities(x.tolist(), x.tolist())
    same = tensor[:, None] == tensor
    ranks = soft_rank(torch.tensor(s).double(), same & ~torch.eye(len(labels), dtype=torch.bool), ~same, 1e-9)
    torch.testing.assert_close(ranks, ranks.round(), atol=1e-9, rtol=0)
    cold = SmoothAPLoss(temperature=1e-9, include_self=False)(x, tensor)
    assert cold.item() == pytest.approx(reference.average_precision_loss(s, labels), abs=1e-9)


@pytest.mark.parametrize("loss", [*(PNPLoss(name) for name in NAMES), SmoothAPLoss()], ids=[*NAMES, "smooth-ap"])
def test_a_perfect_ranking_costs_nothing(loss):
    labels = torch.arange(5).repeat_interleave(3)
    x = torch.eye(5, dtype=torch.float64)[labels].requires_grad_()
    value = loss(x, labels)
    assert value.item() == pytest.approx(0, abs=1e-12)
    assert not torch.autograd.grad(value, x)[0].any()


@settings(max_examples=30, deadline=None)
@given(labels=st.lists(st.integers(0, 3), min_size=2, max_size=12), seed=st.integers(0, 1000))
def test_dq_lies_between_zero_and_one(labels, seed):
    value = PNPLoss("Dq").forward(*batch(labels, seed)).item()
    assert 0 <= value < 1


@settings(max_examples=30, deadline=None)
@given(classes=st.integers(1, 6), seed=st.integers(0, 1000), temperature=st.floats(0.01, 1))
def test_dq_of_alpha_one_is_smooth_ap_for_classes_of_two(classes, seed, temperature):
    x, labels = batch([*range(classes), *range(classes)], seed)
    dq = PNPLoss("Dq", alpha=1, temperature=temperature)(x, labels)
    ap = SmoothAPLoss(temperature=temperature, include_self=False)(x, labels)
    torch.testing.assert_close(dq, ap, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(dq, x), torch.autograd.grad(ap, x), rtol=1e-6, atol=1e-9)


def gradients_of_easy_and_hard_positive(name):
    """One query with a positive behind about 1 negative and one behind about 20, each with one negative level."""
    tau = 0.01
    negatives = [0.9, 0.5, *[0.6] * 19]
    s = torch.tensor([[0.9, 0.5, *negatives]], dtype=torch.float64, requires_grad=True)
    positive = torch.zeros(1, s.shape[1], dtype=torch.bool)
    positive[0, :2] = True
    loss = pnp(s, positive, ~positive, VARIANTS[name](4.0, 2.0), tau)
    easy, hard = torch.autograd.grad(loss, s)[0][0, :2].abs().tolist()
    return easy, hard


@pytest.mark.parametrize("name", NAMES)
def test_d_cares_for_the_easy_positive_and_i_for_the_hard_one(name):
    easy, hard = gradients_of_easy_and_hard_positive(name)
    assert easy > 0
    if name == "O":
        assert easy == pytest.approx(hard, rel=1e-2)
    elif name.startswith("D"):
        assert easy > 1.5 * hard
    else:
        assert hard > 1.2 * easy


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1000), name=st.sampled_from(NAMES))
def test_gradients_of_a_list_sum_to_zero(seed, name):
    generator = torch.Generator().manual_seed(seed)
    s = torch.randn(4, 9, generator=generator, dtype=torch.float64, requires_grad=True)
    positive = torch.rand(4, 9, generator=generator) < 0.4
    loss = pnp(s, positive, ~positive, VARIANTS[name](4.0, 2.0), 0.3)
    torch.testing.assert_close(torch.autograd.grad(loss, s)[0].sum(dim=1), torch.zeros(4).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given_as", ["value", "derivative"])
def test_a_variant_of_ones_own(name, given_as):
    built_in = VARIANTS[name](4.0, 2.0)
    own = make_variant(**{given_as: getattr(built_in, given_as)})
    ranks = torch.tensor([0.0, 0.3, 1.0, 17.0, 4000.0], dtype=torch.float64)
    torch.testing.assert_close(own.value(ranks), built_in.value(ranks), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(own.derivative(ranks), built_in.derivative(ranks), rtol=1e-9, atol=1e-12)
    x, labels = batch([0, 0, 1, 1, 2, 2, 2])
    torch.testing.assert_close(PNPLoss(own, temperature=0.1)(x, labels), PNPLoss(name, temperature=0.1)(x, labels))


def test_settled_queries_count_as_if_they_were_evaluated():
    """One query's negatives stand 0.5 behind its positives, another's between them: both paths in one batch."""
    s = torch.tensor([[0.9, 0.8, 0.3, 0.2], [0.9, 0.5, 0.7, 0.1]], dtype=torch.float64, requires_grad=True)
    positive = torch.tensor([[True, True, False, False]] * 2)
    loss = pnp(s, positive, ~positive, VARIANTS["O"](1.0, 1.0), 0.01)
    before = sum(1 / (1 + math.exp(-(n - p) / 0.01)) for p in (0.9, 0.5) for n in (0.7, 0.1))
    by_hand = before / 2 / 2  # two positives, two queries
    assert loss.item() == pytest.approx(by_hand, abs=1e-12)
    gradient = torch.autograd.grad(loss, s)[0]
    assert not gradient[0].any()
    assert gradient[1].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "Dx"}, "variant must be 'O', 'Iu', 'Ib', 'Ds' or 'Dq'"),
        ({"temperature": 0}, "temperature must be greater than 0"),
        ({"alpha": -1}, "alpha must be greater than 0"),
        ({"b": 0}, "b must be greater than 0"),
    ],
)
def test_wrong_settings_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        PNPLoss(**arguments)
    with pytest.raises(ValueError, match="temperature must be greater than 0"):
        SmoothAPLoss(temperature=-1)
    with pytest.raises(ValueError, match="needs a value, a derivative"):
        make_variant()


def trained_intra_distance(variant: str, seed: int) -> float:
    """Train a small net on 24 modes merged by threes into 8 classes; return the mean distance inside the classes."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(24, 16, generator=generator)
    modes = torch.arange(24).repeat_interleave(6)
    labels = modes // 3
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    loss = PNPLoss(variant, alpha=4.0, b=2.0, temperature=0.05)
    for _ in range(150):
        inputs = centres[modes] + 0.3 * torch.randn(len(modes), 16, generator=generator)
        optimizer.zero_grad()
        loss(net(inputs), labels).backward()
        optimizer.step()
    with torch.no_grad():
        return class_spread(net(centres[modes]), labels)["intra"]


def test_decreasing_quickly_keeps_the_centres_of_merged_classes_apart() -> None:
    """SPEC 001, test 8: a class of three modes stays wider under Dq than under the other variants."""
    others = [trained_intra_distance(variant, seed=0) for variant in ("O", "Iu", "Ib", "Ds")]
    assert trained_intra_distance("Dq", seed=0) > 1.3 * max(others)
