"""What all pair losses promise: the printed equation, any order and class sizes, chosen tuples, memories, precision."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import pairs as reference
from tests.reference.memory import LargestTensor

from tophit.losses.pairwise import (
    AngularLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    MarginLoss,
    NPairLoss,
    TripletLoss,
)

LOSSES = {
    "contrastive": ContrastiveLoss(),
    "triplet": TripletLoss(),
    "margin": MarginLoss(),
    "lifted": LiftedStructureLoss(),
    "n-pair": NPairLoss(),
    "angular": AngularLoss(),
}
losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
UNEVEN = [3, 0, 0, 7, 1, 0, 1, 5, 0, 5, 1, 5, -(2**62)]  # classes of 1 to 4, one label beyond float's integers


def batch(labels, dim=6, seed=0, dtype=torch.float64):
    x = torch.randn(len(labels), dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (x / 2).to(dtype).requires_grad_(), torch.tensor(labels)


def value_and_gradient(loss, x, labels, **others):
    value = loss(x, labels, **others)
    return value.detach(), torch.autograd.grad(value, x)[0]


def slow(loss, x, labels):
    x, labels = x.tolist(), labels.tolist()
    x = [reference.unit(v) for v in x] if loss.normalize else x
    if isinstance(loss, ContrastiveLoss):
        return reference.contrastive(x, labels, reference.all_pairs(labels), loss.margin)
    if isinstance(loss, TripletLoss):
        return reference.triplet(x, reference.all_triplets(labels), loss.margin)
    if isinstance(loss, MarginLoss):
        return reference.margin_loss(x, labels, reference.all_pairs(labels), 1.2, loss.margin)
    if isinstance(loss, LiftedStructureLoss):
        return reference.lifted(x, labels, loss.alpha)
    if isinstance(loss, NPairLoss):
        return reference.npair(x, labels, reference.paired_off(labels))
    return reference.angular(x, labels, reference.paired_off(labels), loss.alpha)


@losses
@settings(max_examples=15, deadline=None)
@given(labels=st.lists(st.integers(0, 4), min_size=1, max_size=12), seed=st.integers(0, 1000))
def test_equals_the_literal_definition(loss, labels, seed):
    x, labels = batch(labels, seed=seed)
    assert loss(x, labels).item() == pytest.approx(slow(loss, x, labels), abs=1e-9)


@losses
def test_gradient_by_finite_differences(loss):
    x, labels = batch(UNEVEN)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), (x,))


@pytest.mark.parametrize("name", ["contrastive", "triplet", "margin", "lifted"])
def test_order_of_the_batch_does_not_matter(name):
    """For N-pair and angular the order says who is paired with whom."""
    loss = LOSSES[name]
    x, labels = batch(UNEVEN)
    value, gradient = value_and_gradient(loss, x, labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    shuffled, shuffled_gradient = value_and_gradient(loss, x.detach()[order].requires_grad_(), labels[order])
    torch.testing.assert_close(shuffled, value)
    torch.testing.assert_close(shuffled_gradient, gradient[order])


@losses
@pytest.mark.parametrize("labels", [[7], []], ids=["one image", "no image"])
def test_without_pairs_it_is_zero_and_can_be_learned_from(loss, labels):
    x, labels = batch(labels)
    value, gradient = value_and_gradient(loss, x, labels.long())
    assert value.shape == ()
    assert value.item() == 0
    assert not gradient.any()


@losses
@pytest.mark.parametrize("labels", [[5] * 6, [1, 2, 3, 4]], ids=["one class", "singletons"])
def test_one_kind_of_pairs_only_has_a_finite_gradient(loss, labels):
    x, labels = batch(labels)
    value, gradient = value_and_gradient(loss, x, labels)
    assert value.isfinite()
    assert gradient.isfinite().all()


@losses
def test_the_same_image_twice_has_a_finite_gradient(loss):
    x, labels = batch([0, 0, 1, 1])
    x = x.detach()[[0, 0, 2, 2]].requires_grad_()
    for choice in ({}, {"triplets": (torch.tensor([0]), torch.tensor([1]), torch.tensor([2]))}):
        value, gradient = value_and_gradient(loss, x, labels, **choice)
        assert value.isfinite()
        assert gradient.isfinite().all()


@losses
def test_triplets_are_their_pairs(loss):
    """All triplets of a batch are all that the loss could look at; for contrastive and margin weighted by frequency."""
    x, labels = batch([0, 0, 1, 1, 2, 2])
    a, p, n = (torch.tensor(c) for c in zip(*reference.all_triplets(labels.tolist()), strict=True))
    value, gradient = value_and_gradient(loss, x, labels, triplets=(a, p, n))
    if isinstance(loss, ContrastiveLoss | MarginLoss):
        expected = value_and_gradient(loss, x, labels, pairs=(torch.cat([a, a]), torch.cat([p, n])))
    elif isinstance(loss, TripletLoss | LiftedStructureLoss):
        expected = value_and_gradient(loss, x, labels)
    else:  # every anchor against all of the other classes
        expected = value_and_gradient(loss, x, labels, indices_tuple=(a, p, a, n))
    torch.testing.assert_close((value, gradient), expected)
    torch.testing.assert_close(loss(x, labels, indices_tuple=(a, p, n)), value)


@pytest.mark.parametrize("name", ["n-pair", "angular"])
def test_pairs_choose_anchors_and_positives(name):
    """As in a projection: several fresh images a class, all with the representative as their positive."""
    loss = LOSSES[name]
    x, labels = batch([0, 0, 0, 1, 1, 2, 2])
    pairs = [(1, 0), (2, 0), (4, 3), (6, 5)]
    a, p = (torch.tensor(c) for c in zip(*pairs, strict=True))
    args = (x.tolist(), labels.tolist(), pairs)
    expected = reference.npair(*args) if name == "n-pair" else reference.angular(*args, loss.alpha)
    assert loss(x, labels, pairs=(a, p)).item() == pytest.approx(expected, abs=1e-9)


def test_npair_triplets_of_one_pair_are_one_term():
    x, labels = batch([0, 0, 1, 2])
    triplets = tuple(torch.tensor(c) for c in ([0, 0], [1, 1], [2, 3]))
    similarity = (x @ x.T).tolist()
    exponents = torch.tensor([similarity[0][j] - similarity[0][1] for j in (2, 3)])
    assert NPairLoss()(x, labels, triplets=triplets).item() == pytest.approx((1 + exponents.exp().sum()).log().item())


def test_norm_penalty_adds_the_mean_squared_length():
    x, labels = batch(UNEVEN)
    added = NPairLoss(norm_penalty=0.5)(x, labels) - NPairLoss()(x, labels)
    torch.testing.assert_close(added, 0.5 * x.square().sum(dim=1).mean())


def test_chunks_and_large_selections_change_nothing(monkeypatch):
    x, labels = batch(UNEVEN * 2)
    triplets = tuple(torch.tensor(c) for c in zip(*reference.all_triplets(labels.tolist()), strict=True))
    whole = {name: value_and_gradient(loss, x, labels) for name, loss in LOSSES.items()}
    chosen = {name: value_and_gradient(loss, x, labels, triplets=triplets) for name, loss in LOSSES.items()}
    monkeypatch.setattr("tophit.losses.pairwise.triplet._CHUNK", 1)
    monkeypatch.setattr("tophit.losses.pairwise.pair_loss._DIRECT", 0)
    for name, loss in LOSSES.items():
        torch.testing.assert_close(value_and_gradient(loss, x, labels), whole[name])
        torch.testing.assert_close(value_and_gradient(loss, x, labels, triplets=triplets), chosen[name])


@losses
def test_normalisation_is_the_papers_unless_told(loss):
    x, labels = batch(UNEVEN)
    raw, unit = (type(loss)(normalize=flag) for flag in (False, True))
    torch.testing.assert_close(raw(torch.nn.functional.normalize(x, dim=1), labels), unit(x, labels))
    assert loss.normalize is isinstance(loss, ContrastiveLoss | TripletLoss | MarginLoss)


@losses
def test_bfloat16_autocast_computes_in_float32(loss):
    x, labels = batch(UNEVEN, dtype=torch.float32)
    value, gradient = value_and_gradient(loss, x, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = value_and_gradient(loss, x, labels)
    assert inside[0].dtype == torch.float32
    torch.testing.assert_close(inside, (value, gradient))
    half = x.detach().bfloat16().requires_grad_()
    torch.testing.assert_close(loss(half, labels), loss(half.float(), labels))


@losses
def test_compiled_equals_eager(loss):
    x, labels = batch(UNEVEN, dtype=torch.float32)
    compiled = torch.compile(loss, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, while it compiles
        torch.testing.assert_close(value_and_gradient(compiled, x, labels), value_and_gradient(loss, x, labels))


@pytest.mark.parametrize("name", ["contrastive", "triplet", "margin", "lifted"])
def test_it_drops_into_the_memory_of_pytorch_metric_learning(name):
    from pytorch_metric_learning.losses import CrossBatchMemory

    loss = LOSSES[name]

    class Memory(CrossBatchMemory):
        @staticmethod
        def supported_losses():
            return [type(loss).__name__]

    memory = Memory(loss, embedding_size=6, memory_size=32)
    x, labels = batch(UNEVEN, dtype=torch.float32)
    torch.testing.assert_close(memory(x, labels), loss(x, labels))  # the memory holds just this batch
    y, _ = batch(UNEVEN, seed=4, dtype=torch.float32)
    second = memory(y, labels)
    assert torch.autograd.grad(second, y)[0].isfinite().all()
    assert not torch.isclose(second, loss(y, labels))


def test_they_are_the_peers_where_those_are_the_same_functions():
    from pytorch_metric_learning import distances, reducers
    from pytorch_metric_learning import losses as peer

    x, labels = batch([0, 0, 0, 1, 1, 2, 2])
    plain = {"distance": distances.LpDistance(normalize_embeddings=False)}
    lifted = peer.LiftedStructureLoss(neg_margin=1, pos_margin=0, **plain)
    torch.testing.assert_close(LiftedStructureLoss()(x, labels), lifted(x, labels))
    triplet = peer.TripletMarginLoss(margin=0.2, distance=distances.LpDistance(power=2), reducer=reducers.MeanReducer())
    torch.testing.assert_close(TripletLoss()(x, labels), triplet(x, labels))


@losses
def test_a_matrix_says_what_is_the_same(loss):
    x, labels = batch(UNEVEN)
    torch.testing.assert_close(loss(x, labels[:, None] == labels), loss(x, labels))


@losses
def test_wrong_input_is_named(loss):
    x, labels = batch(UNEVEN)
    i = torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"labels must be \(13,\)"):
        loss(x, labels[:5])
    with pytest.raises(ValueError, match="give only one of pairs, triplets and indices_tuple"):
        loss(x, labels, pairs=(i, i), triplets=(i, i, i))
    with pytest.raises(ValueError, match=r"pairs must be 2 index tensors of the same length, got \(2,\), \(1,\)"):
        loss(x, labels, pairs=(i, i[:1]))
    with pytest.raises(ValueError, match="3 tensors"):
        loss(x, labels, indices_tuple=(labels, labels))


@losses
def test_memory_is_of_the_order_of_the_distance_matrix(loss):
    """Classes of 128 make 768 x 127 x 640 = 62 million triplets; no tensor is larger than a few matrices."""
    x, labels = batch([i // 128 for i in range(768)], dim=8, dtype=torch.float32)
    with LargestTensor() as record:
        loss(x, labels).backward()
    assert record.elements <= 4 * 768**2


@pytest.mark.parametrize("name", LOSSES)
def test_embeddings_that_are_no_numbers_give_no_number(name: str) -> None:
    """A loss that looked fine would hide that training has diverged."""
    assert LOSSES[name](torch.full((8, 4), torch.nan), torch.arange(8) // 2).isnan()


def test_indices_must_be_whole_numbers() -> None:
    x, labels = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"index tensors of integers, got torch.float32"):
        ContrastiveLoss()(x, labels, pairs=(torch.tensor([0.0]), torch.tensor([1.0])))
    with pytest.raises(ValueError, match=r"pairs must be indices of at least 0, got -1"):
        ContrastiveLoss()(x, labels, pairs=(torch.tensor([0]), torch.tensor([-1])))
