"""What all ranking losses promise: any order, any class sizes, no positives, precision, memories, compilation."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference import ranking as reference
from tests.reference.memory import LargestTensor

from tophit.losses import (
    BlackboxAPLoss,
    FastAPLoss,
    HistogramLoss,
    MultiSimilarityLoss,
    PNPLoss,
    RecallAtKLoss,
    RoadmapLoss,
    SmoothAPLoss,
    SupRankLoss,
    TopKPrecisionLoss,
)
from tophit.losses import soft_rank as core

# A temperature at which random batches are neither all settled nor all alike.
LOSSES = {
    **{f"pnp-{variant}": PNPLoss(variant, temperature=0.1) for variant in ("O", "Iu", "Ib", "Ds", "Dq")},
    "pnp-self": PNPLoss("Dq", include_self=True, temperature=0.1),
    "smooth-ap": SmoothAPLoss(temperature=0.1),
    "smooth-ap-no-self": SmoothAPLoss(temperature=0.1, include_self=False),
    "topk": TopKPrecisionLoss(k=3),
    "topk-mean": TopKPrecisionLoss(k=2, reduction="mean"),
    "fastap": FastAPLoss(),
    "histogram": HistogramLoss(bins=20),
    "multi-similarity": MultiSimilarityLoss(),
    "blackbox-ap": BlackboxAPLoss(interpolation=2.0),
    "blackbox-recall": BlackboxAPLoss(interpolation=2.0, measure="recall"),
    "recall-at-k": RecallAtKLoss(k=(1, 2, 4), temperature=0.1),
    "roadmap": RoadmapLoss(temperature=0.1),
    "roadmap-no-self": RoadmapLoss(temperature=0.1, include_self=False, weight=0.0),
    "suprank-ndcg": SupRankLoss(temperature=0.1, weight=0.0),
    "suprank-recall": SupRankLoss("recall", k=(1, 3), temperature=0.1, slope=5.0, weight=0.0, include_self=False),
}
losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
SMOOTH = {name: loss for name, loss in LOSSES.items() if not name.startswith("blackbox")}  # those with a true gradient
MEANS_OVER_ALL = ("topk-mean", "multi-similarity")  # means over all rows, with positives or without
NEVER_ZERO = ("recall-at-k", "roadmap", "suprank-recall")  # a perfect ranking still costs something
UNEVEN = [3, 0, 0, 7, 1, 0, 1, 5, 0, 5, 1, 5, -(2**62)]  # classes of 1 to 4, one label beyond float's integers


def batch(labels, dim=6, seed=0, dtype=torch.float64):
    x = torch.randn(len(labels), dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.to(dtype).requires_grad_(), torch.tensor(labels)


def value_and_gradient(loss, x, labels, **others):
    value = loss(x, labels, **others)
    return value.detach(), torch.autograd.grad(value, x)[0]


def slow(loss, x, labels):
    s, y = reference.similarities(x.tolist(), x.tolist()), labels.tolist()
    if isinstance(loss, PNPLoss):
        return reference.pnp(s, y, loss.variant, loss.alpha, loss.b, loss.temperature, loss.include_self)
    if isinstance(loss, SmoothAPLoss):
        return reference.smooth_ap(s, y, loss.temperature, loss.include_self)
    if isinstance(loss, RecallAtKLoss):
        return reference.recall_at_k(s, y, loss.k, loss.temperature, loss.rank_temperature)
    if isinstance(loss, RoadmapLoss):
        step = loss.temperature, loss.delta, loss.slope, loss.include_self
        name = getattr(loss, "measure", "ap")
        recall = reference.sup_recall(loss.k, loss.rank_temperature) if name == "recall" else None
        measure = {"ap": reference.graded_ap, "ndcg": reference.sup_ndcg}.get(name, recall)
        ranked = reference.happier(s, [[label] for label in y], 1.0, *step, measure)
        return (1 - loss.weight) * ranked + loss.weight * reference.calibration(s, y, loss.high, loss.low)
    if isinstance(loss, FastAPLoss):
        return reference.fastap(s, y, loss.bins)
    if isinstance(loss, HistogramLoss):
        return reference.histogram(s, y, loss.bins)
    if isinstance(loss, MultiSimilarityLoss):
        return reference.multi_similarity(s, y, loss.alpha, loss.beta, loss.base, loss.epsilon)
    if isinstance(loss, BlackboxAPLoss):
        return reference.blackbox(s, y, loss.interpolation, loss.margin, loss.measure)[0]
    total = 0.0
    for q in range(len(y)):
        others = [j for j in range(len(y)) if j != q]
        same = [int(y[j] == y[q]) for j in others]
        total += reference.topk_precision([s[q][j] for j in others], same, loss.k, loss.margin)
    return total / (len(y) if loss.reduction == "mean" else 1)


@losses
@settings(max_examples=15, deadline=None)
@given(labels=st.lists(st.integers(0, 4), min_size=2, max_size=14), seed=st.integers(0, 1000))
def test_equals_the_literal_definition(loss, labels, seed):
    x, labels = batch(labels, seed=seed)
    assert loss(x, labels).item() == pytest.approx(slow(loss, x, labels), abs=1e-9)


@pytest.mark.parametrize("loss", SMOOTH.values(), ids=list(SMOOTH))
def test_gradient_by_finite_differences(loss):
    x, labels = batch(UNEVEN)
    assert torch.autograd.gradcheck(lambda x: loss(x, labels), (x,))


@losses
def test_order_of_the_batch_does_not_matter(loss):
    x, labels = batch(UNEVEN)
    value, gradient = value_and_gradient(loss, x, labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    shuffled, shuffled_gradient = value_and_gradient(loss, x.detach()[order].requires_grad_(), labels[order])
    torch.testing.assert_close(shuffled, value)
    torch.testing.assert_close(shuffled_gradient, gradient[order])


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "roadmap"])  # it also pushes pairs apart
@pytest.mark.parametrize("labels", [[1, 2, 3, 4], [7], []], ids=["singletons", "one image", "no image"])
def test_without_positives_it_is_zero_and_can_be_learned_from(name, labels):
    loss = LOSSES[name]
    x, labels = batch(labels)
    value = loss(x, labels.long())
    value.backward()
    assert value.shape == ()
    assert value.item() == 0
    assert x.grad is not None
    assert not x.grad.any()


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in NEVER_ZERO])
def test_one_class_only_is_zero(name):
    loss = LOSSES[name]
    x, labels = batch([5] * 6)
    value, gradient = value_and_gradient(loss, x, labels)
    assert value.item() == pytest.approx(0, abs=1e-12)
    assert gradient.abs().max().item() < 1e-12


@losses
def test_chunks_change_nothing(loss, monkeypatch):
    x, labels = batch(UNEVEN * 3)
    whole = value_and_gradient(loss, x, labels)
    monkeypatch.setattr(core, "_CPU_CHUNK", 1)
    monkeypatch.setattr("tophit.losses.topk_precision._CHUNK", 1)
    torch.testing.assert_close(value_and_gradient(loss, x, labels), whole)


@losses
def test_unnormalised_embeddings_are_taken_as_they_are(loss):
    x, labels = batch(UNEVEN)
    raw = type(loss)(**{**vars_of(loss), "normalize": False})
    unit = torch.nn.functional.normalize(x, dim=1)
    torch.testing.assert_close(raw(unit, labels), loss(x, labels))
    assert not torch.isclose(raw(x, labels), loss(x, labels))


def vars_of(loss):
    return {key: value for key, value in vars(loss).items() if not key.startswith("_") and key != "training"}


@losses
def test_bfloat16_autocast_computes_in_float32(loss):
    x, labels = batch(UNEVEN, dtype=torch.float32)
    value, gradient = value_and_gradient(loss, x, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside, inside_gradient = value_and_gradient(loss, x, labels)
    assert inside.dtype == torch.float32
    torch.testing.assert_close((inside, inside_gradient), (value, gradient))
    half = x.detach().bfloat16().requires_grad_()
    rounded, rounded_gradient = value_and_gradient(loss, half, labels)
    assert rounded_gradient.dtype == torch.bfloat16
    torch.testing.assert_close(rounded, loss(half.float(), labels))


@pytest.mark.parametrize("loss", [LOSSES["pnp-Dq"], LOSSES["smooth-ap"], LOSSES["topk"]], ids=["pnp", "ap", "topk"])
def test_compiled_equals_eager(loss):
    x, labels = batch(UNEVEN, dtype=torch.float32)
    compiled = torch.compile(loss, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, while it compiles
        torch.testing.assert_close(value_and_gradient(compiled, x, labels), value_and_gradient(loss, x, labels))
        other, other_labels = batch(UNEVEN[:9], seed=3, dtype=torch.float32)
        torch.testing.assert_close(compiled(other, other_labels), loss(other, other_labels))


def all_pairs(labels, ref_labels):
    same = labels[:, None] == ref_labels
    self_pairs = torch.eye(len(labels), len(ref_labels), dtype=torch.bool)
    return (*(same & ~self_pairs).nonzero(as_tuple=True), *(~same).nonzero(as_tuple=True))


@losses
def test_a_memory_that_holds_the_batch_ranks_as_the_batch_does(loss):
    x, labels = batch(UNEVEN)
    memory = x.detach().clone()
    pairs = all_pairs(labels, labels)
    value, gradient = value_and_gradient(loss, x, labels, indices_tuple=pairs, ref_emb=memory, ref_labels=labels)
    torch.testing.assert_close(value, loss(x, labels).detach())
    assert gradient.any()


@losses
def test_a_memory_is_ranked_like_a_list(loss):
    """The first 5 rows against the other 8: the same as rows and columns of one joined batch."""
    x, labels = batch(UNEVEN)
    queries, memory = x[:5], x[5:]
    value, gradient = value_and_gradient(loss, x, labels, indices_tuple=block(labels, 5))
    apart = loss(queries, labels[:5], ref_emb=memory, ref_labels=labels[5:])
    scale = len(labels) / 5 if any(loss is LOSSES[name] for name in MEANS_OVER_ALL) else 1
    torch.testing.assert_close(apart, value * scale)
    torch.testing.assert_close(torch.autograd.grad(apart, x)[0], gradient * scale)


def block(labels, first):
    """The pairs of the first rows with the other rows."""
    same = labels[:, None] == labels
    chosen = torch.zeros_like(same)
    chosen[:first, first:] = True
    return (*(same & chosen).nonzero(as_tuple=True), *(~same & chosen).nonzero(as_tuple=True))


@losses
def test_it_drops_into_the_memory_of_pytorch_metric_learning(loss):
    from pytorch_metric_learning.losses import CrossBatchMemory

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


@losses
def test_a_matrix_says_what_is_the_same(loss):
    x, labels = batch(UNEVEN)
    torch.testing.assert_close(loss(x, labels[:, None] == labels), loss(x, labels))


@losses
def test_not_a_number_shows(loss):
    x, labels = batch([0, 0, 1, 1, 2, 2])
    assert torch.isnan(loss(x.detach().index_fill(0, torch.tensor([3]), torch.nan), labels))


@losses
def test_wrong_input_is_named(loss):
    x, labels = batch(UNEVEN)
    with pytest.raises(ValueError, match=r"labels must be \(13,\)"):
        loss(x, labels[:5])
    with pytest.raises(ValueError, match=r"embeddings must be floats of shape \(N, d\)"):
        loss(x[0], labels)
    with pytest.raises(ValueError, match="ref_emb needs ref_labels"):
        loss(x, labels, ref_emb=x.detach().clone())
    with pytest.raises(ValueError, match=r"ref_emb must be \(M, 6\)"):
        loss(x, labels, ref_emb=x[:, :2], ref_labels=labels)
    with pytest.raises(ValueError, match="3 tensors"):
        loss(x, labels, indices_tuple=(labels, labels))


@losses
def test_memory_is_of_the_order_of_the_similarity_matrix(loss):
    """Nothing is larger than the matrix or a chunk, where the naive form has batch^3 = 452 million elements."""
    x, labels = batch([i // 4 for i in range(768)], dim=8, dtype=torch.float32)
    with LargestTensor() as record:
        loss(x, labels).backward()
    assert record.elements <= max(768**2, core._CPU_CHUNK)
