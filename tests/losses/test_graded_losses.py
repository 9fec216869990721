"""ROADMAP's bound and HAPPIER: hierarchies, graded relevances, small cases by hand, the literal definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.losses.test_ranking_losses import batch, value_and_gradient
from tests.reference import ranking as reference

from tophit.losses import HAPPIERLoss, RoadmapLoss
from tophit.losses import soft_rank as core
from tophit.losses.graded_rank import UpperStep, graded_rank_loss

PATHS = [[0, 0], [0, 0], [0, 1], [1, 2], [1, 2], [1, 3], [0, 1], [2, 4], [0, 0]]  # family and species; one alone
paths_lists = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=10)


def paths_batch(paths=PATHS, seed=0):
    x, _ = batch([0] * len(paths), seed=seed)
    return x, torch.tensor(paths)


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


# --- by hand


def test_a_perfect_order_of_grades_costs_nothing_and_a_swap_does() -> None:
    """Relevances 1, 0.5, 0 in their order; then the two last ones swapped: 1 - (1 + 0.5 * 2 ... ) by hand."""
    step = UpperStep()
    best = graded_rank_loss(row(0.9, 0.5, 0.1), row(1.0, 0.5, 0.0), step)
    assert best.item() == pytest.approx(0, abs=1e-12)
    swapped = graded_rank_loss(row(0.9, 0.1, 0.5), row(1.0, 0.5, 0.0), step)
    rank = 2 + 100 * (0.4 - 0.05) + 1 / (1 + torch.e**-5) + 0.5  # the irrelevant one leads by 0.4
    assert swapped.item() == pytest.approx(1 - (1 + (0.5 + 0.5) / rank) / 1.5)


def test_a_less_relevant_result_ahead_of_a_more_relevant_one_costs() -> None:
    """Sisters before the same species: both count, but the order is wrong."""
    found = graded_rank_loss(row(0.5, 0.9), row(1.0, 0.5), UpperStep())
    rank = 1 + 100 * (0.4 - 0.05) + 1 / (1 + torch.e**-5) + 0.5
    assert found.item() == pytest.approx(1 - ((1 + 0.5) / rank + 0.5) / 1.5)


@pytest.mark.parametrize("x", [-0.3, -0.01, 0.0, 0.01, 0.05, 0.06, 0.4])
def test_the_step_is_never_below_the_step_function_and_its_gradient_does_not_vanish_ahead(x: float) -> None:
    value, slope = UpperStep().evaluate(torch.tensor(x, dtype=torch.float64))
    assert value.item() == pytest.approx(reference.upper_step(x, 0.01, 0.05, 100.0))
    assert value.item() >= (x > 0)
    if x > 0.05:
        assert slope.item() == 100


def test_the_bound_is_below_average_precision() -> None:
    x, labels = batch([0, 1, 2] * 5)
    s = torch.nn.functional.normalize(x.detach(), dim=1)
    s = s @ s.T
    positive = (labels[:, None] == labels) & ~torch.eye(15, dtype=torch.bool)
    relevance = positive.double() - torch.eye(15)
    bounds = 1 - graded_rank_loss(s, relevance, UpperStep())
    for q in range(15):
        order = [j for j in s[q].argsort(descending=True).tolist() if j != q]
        hits = [bool(positive[q, j]) for j in order]
        precision = sum(sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit) / sum(hits)
        assert bounds[q].item() <= precision + 1e-12


# --- HAPPIER against its literal definition


@settings(max_examples=25, deadline=None)
@given(paths=paths_lists, seed=st.integers(0, 1000), include_self=st.booleans(), alpha=st.sampled_from([0.5, 1.0, 2.0]))
def test_happier_equals_the_literal_definition(paths, seed, include_self, alpha) -> None:
    x, labels = paths_batch([list(path) for path in paths], seed)
    loss = HAPPIERLoss(alpha=alpha, temperature=0.1, include_self=include_self)
    s = reference.similarities(x.tolist(), x.tolist())
    expected = reference.happier(s, labels.tolist(), alpha, 0.1, loss.delta, loss.slope, include_self)
    assert loss(x, labels).item() == pytest.approx(expected, abs=1e-9)


def test_gradient_by_finite_differences() -> None:
    x, labels = paths_batch()
    assert torch.autograd.gradcheck(lambda x: HAPPIERLoss(temperature=0.1)(x, labels), (x,))


def test_order_and_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = paths_batch(PATHS * 2)
    loss = HAPPIERLoss(temperature=0.1)
    value, gradient = value_and_gradient(loss, x, labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    shuffled, shuffled_gradient = value_and_gradient(loss, x.detach()[order].requires_grad_(), labels[order])
    torch.testing.assert_close((shuffled, shuffled_gradient), (value, gradient[order]))
    monkeypatch.setattr(core, "_CPU_CHUNK", 1)
    torch.testing.assert_close(value_and_gradient(loss, x, labels), (value, gradient))


def test_one_level_is_the_ranking_part_of_roadmap() -> None:
    x, labels = batch([0, 0, 1, 1, 2, 0, 3])
    expected = RoadmapLoss(weight=0.0)(x, labels)
    for given_labels in (labels, labels[:, None], labels[:, None] == labels):
        torch.testing.assert_close(HAPPIERLoss()(x, given_labels), expected)


def test_judgements_are_taken_as_they_are_and_a_memory_as_a_list() -> None:
    x, _ = paths_batch()
    grades = torch.randint(0, 4, (9, 9), generator=torch.Generator().manual_seed(0)).double()
    loss = HAPPIERLoss(temperature=0.1, include_self=False)
    s = torch.tensor(reference.similarities(x.tolist(), x.tolist()))
    lists = [([s[q, j] for j in range(9) if j != q], [grades[q, j] for j in range(9) if j != q]) for q in range(9)]
    expected = [1 - reference.graded_ap(*each, 0.1, loss.delta, loss.slope) for each in lists]
    assert loss(x, grades).item() == pytest.approx(float(sum(expected)) / 9)
    apart = [1 - reference.graded_ap(s[q, 4:], grades[q, 4:], 0.1, loss.delta, loss.slope) for q in range(4)]
    assert loss(x[:4], grades[:4, 4:], ref_emb=x[4:]).item() == pytest.approx(float(sum(apart)) / 4)


def test_nothing_relevant_is_zero_and_wrong_shapes_are_named() -> None:
    x, _ = paths_batch([[0, 0], [1, 1], [2, 2]])
    value, gradient = value_and_gradient(HAPPIERLoss(), x, torch.tensor([[0, 0], [1, 1], [2, 2]]))
    assert value.item() == 0
    assert not gradient.any()
    with pytest.raises(ValueError, match=r"labels must be paths \(3, levels\)"):
        HAPPIERLoss()(x, torch.zeros(2, 2, dtype=torch.long))
    with pytest.raises(ValueError, match=r"relevances must be \(3, 3\)"):
        HAPPIERLoss()(x, torch.zeros(3, 2))


def test_learning_puts_the_same_species_first_and_the_same_family_next() -> None:
    x, labels = paths_batch([[f, 2 * f + s] for f in range(3) for s in range(2) for _ in range(4)])
    loss = HAPPIERLoss()
    for _ in range(200):
        _, gradient = value_and_gradient(loss, x, labels)
        x = (x - 0.02 * torch.nn.functional.normalize(gradient, dim=1)).detach().requires_grad_()
    unit = torch.nn.functional.normalize(x.detach(), dim=1)
    shared = (labels[:, None] == labels).sum(dim=2)
    means = [float((unit @ unit.T)[(shared == level) & ~torch.eye(24, dtype=torch.bool)].mean()) for level in range(3)]
    assert means[0] < means[1] < means[2]
