"""Losses over prefixes of the vector, and the threshold-consistent margin, around any loss."""

import pytest
import torch
from tests.reference import ranking as reference

from tophit.errors import UsageError
from tophit.losses import PNPLoss, PrefixLoss, ProxyAnchorLoss, ThresholdConsistentLoss, TripletLoss
from tophit.losses.prefixes import prefix_lengths

LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])


def batch(seed: int = 0) -> torch.Tensor:
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def test_is_the_mean_over_the_prefixes() -> None:
    x = batch()
    loss = PrefixLoss(lambda _: PNPLoss(temperature=0.1), (4, 2, 6))
    each = [PNPLoss(temperature=0.1)(x[:, :length], LABELS) for length in (2, 4, 6)]
    assert loss(x, LABELS).item() == pytest.approx(torch.stack(each).mean().item(), abs=1e-12)


def test_proxies_are_learned_for_each_length() -> None:
    loss = PrefixLoss(lambda length: ProxyAnchorLoss(3, length), (2, 6))
    loss(batch().float(), LABELS).backward()
    assert [tuple(weights.shape)[-1] for weights in loss.parameters()] == [2, 6]
    assert all(weights.grad is not None and weights.grad.any() for weights in loss.parameters())


def test_a_memory_and_chosen_triplets_reach_every_prefix() -> None:
    x, memory = batch(), batch(1).detach()
    loss = PrefixLoss(lambda _: PNPLoss(temperature=0.1), (3, 6))
    each = [PNPLoss(temperature=0.1)(x[:, :n], LABELS, ref_emb=memory[:, :n], ref_labels=LABELS) for n in (3, 6)]
    found = loss(x, LABELS, ref_emb=memory, ref_labels=LABELS)
    assert found.item() == pytest.approx(torch.stack(each).mean().item(), abs=1e-12)
    triplets = (torch.tensor([0]), torch.tensor([1]), torch.tensor([2]))
    one = PrefixLoss(lambda _: TripletLoss(margin=2.0), (6,))
    assert one(x, LABELS, triplets).item() == pytest.approx(TripletLoss(margin=2.0)(x, LABELS, triplets).item())


def test_a_prefix_longer_than_the_vector_is_refused() -> None:
    assert prefix_lengths((4, 2, 4), 8) == [2, 4, 8]
    with pytest.raises(UsageError, match=r"loss\.prefixes: 16 is longer than the vectors, which have 8"):
        prefix_lengths((4, 16), 8)


def test_the_margins_equal_the_literal_definition_beside_any_loss() -> None:
    x = batch()
    loss = ThresholdConsistentLoss(TripletLoss(), weight=0.7, high=0.8, low=0.1)
    s = reference.similarities(x.tolist(), x.tolist())
    expected = TripletLoss()(x, LABELS).item() + 0.7 * reference.calibration(s, LABELS.tolist(), 0.8, 0.1)
    assert loss(x, LABELS).item() == pytest.approx(expected, abs=1e-6)
    memory = batch(1).detach()
    alone = TripletLoss()(x, LABELS, ref_emb=memory, ref_labels=LABELS)
    assert loss(x, LABELS, ref_emb=memory, ref_labels=LABELS) == alone


def test_satisfied_pairs_are_left_alone() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], requires_grad=True)
    loss = ThresholdConsistentLoss(TripletLoss(), high=0.9, low=0.5)
    value = loss(x, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert value.item() == 0
    assert x.grad is not None
    assert not x.grad.any()
