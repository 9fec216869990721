"""The proxy losses: the equations as printed, their properties, peers, extremes and memory."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses as peer
from pytorch_metric_learning import regularizers as peer_regularizers
from tests.reference import proxies as reference

from tophit.losses import MultiProxyAnchorLoss, ProxyAnchorLoss, ProxyNCALoss, SoftTripleLoss, distinct_centres
from tophit.losses import class_similarity as core
from tophit.losses.class_similarity import class_similarity

VARIANTS = ("class", "data", "all-pairs")
LABELS = torch.tensor([0, 2, 1, 0, 4, 2, 2])  # shuffled, unequal, class 3 absent


def embeddings(seed=0, samples=7, dim=6):
    return torch.randn(samples, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def every_loss(dtype=torch.float64, count=3):
    torch.manual_seed(1)
    return [
        *(MultiProxyAnchorLoss(5, 6, count, variant).to(dtype) for variant in VARIANTS),
        SoftTripleLoss(5, 6, count).to(dtype),
        ProxyAnchorLoss(5, 6).to(dtype),
        ProxyNCALoss(5, 6).to(dtype),
        ProxyNCALoss(5, 6, 1 / 9, probability=True).to(dtype),
    ]


def set_proxies(loss, proxies):
    with torch.no_grad():
        loss.proxies.copy_(proxies.reshape(loss.proxies.shape))
    return loss


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_multi_proxy_anchor_is_the_printed_equation(variant, count, seed):
    random = np.random.default_rng(seed)
    x, proxies = random.normal(size=(9, 5)), random.normal(size=(6, count, 5))
    labels = random.integers(0, 6, 9).tolist()
    loss = MultiProxyAnchorLoss(6, 5, count, variant, alpha=8.0, margin=0.2, gamma=0.3, regularizer=0.7).double()
    got = set_proxies(loss, torch.tensor(proxies))(torch.tensor(x), torch.tensor(labels))
    expected = reference.multi_proxy_anchor(x, proxies, labels, variant, 8.0, 0.2, 0.3, 0.7)
    assert got.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("probability", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_proxy_nca_is_the_printed_equation(probability, seed):
    random = np.random.default_rng(seed)
    x, proxies = random.normal(size=(9, 5)), random.normal(size=(6, 5))
    labels = random.integers(0, 6, 9).tolist()
    loss = set_proxies(ProxyNCALoss(6, 5, 0.4, probability).double(), torch.tensor(proxies))
    expected = reference.proxy_nca(x, proxies, labels, 0.4, probability)
    assert loss(torch.tensor(x), torch.tensor(labels)).item() == pytest.approx(expected, rel=1e-12)
    x, proxies = reference.rows_of_unit_length(x), reference.rows_of_unit_length(proxies)
    raw = set_proxies(ProxyNCALoss(6, 5, 0.4, probability, normalize=False).double(), torch.tensor(proxies))
    assert raw(torch.tensor(x), torch.tensor(labels)).item() == pytest.approx(expected, rel=1e-12)


def test_raw_proxy_nca_takes_true_distances():
    """Vectors of other lengths than 1: the proxies' lengths count."""
    x, proxies = embeddings(0), embeddings(1, 5)
    loss = set_proxies(ProxyNCALoss(5, 6, probability=True, normalize=False).double(), proxies)
    logits = -torch.cdist(x, proxies).square()
    torch.testing.assert_close(loss(x, LABELS), torch.nn.functional.cross_entropy(logits, LABELS))


@pytest.mark.parametrize("index", range(7))
@pytest.mark.parametrize("normalize", [True, False])
def test_gradcheck(index, normalize):
    loss = every_loss()[index]
    loss.normalize = normalize
    for settings_of_size in ("alpha", "scale"):
        if hasattr(loss, settings_of_size):
            setattr(loss, settings_of_size, 3.0)
    if not normalize:  # Eq. 3 is of unit vectors; others would meet the floor of its root
        set_proxies(loss, torch.nn.functional.normalize(loss.proxies.detach(), dim=-1))
    x = embeddings().requires_grad_()
    assert torch.autograd.gradcheck(lambda a, _: loss(a, LABELS), (x, loss.proxies))


def test_chunks_change_nothing(monkeypatch):
    results = []
    for limit in (1 << 18, 1):
        monkeypatch.setattr(core, "_CPU_CHUNK", limit)
        for loss in every_loss():
            x = embeddings().requires_grad_()
            value = loss(x, LABELS)
            results.append((value, *torch.autograd.grad(value, (x, loss.proxies))))
    for whole, chunked in zip(results[:7], results[7:], strict=True):
        for a, b in zip(whole, chunked, strict=True):
            torch.testing.assert_close(a, b)


def test_k_identical_proxies_equal_one():
    x = embeddings()
    for variant in VARIANTS:
        one = MultiProxyAnchorLoss(5, 6, 1, variant).double()
        four = set_proxies(MultiProxyAnchorLoss(5, 6, 4, variant).double(), one.proxies.detach().expand(5, 4, 6))
        torch.testing.assert_close(four(x, LABELS), one(x, LABELS))
    one = SoftTripleLoss(5, 6, 1).double()
    four = set_proxies(SoftTripleLoss(5, 6, 4, regularizer=0.0).double(), one.proxies.detach().expand(5, 4, 6))
    torch.testing.assert_close(four(x, LABELS), one(x, LABELS))


def test_one_proxy_without_regulariser_is_proxy_anchor():
    x, proxies = embeddings(), embeddings(1, 5)
    one = set_proxies(MultiProxyAnchorLoss(5, 6, 1).double(), proxies)
    torch.testing.assert_close(one(x, LABELS), set_proxies(ProxyAnchorLoss(5, 6).double(), proxies)(x, LABELS))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gamma_goes_from_maximum_to_mean(dtype):
    x = torch.nn.functional.normalize(embeddings(), dim=1).to(dtype).requires_grad_()
    proxies = embeddings(1, 20).view(5, 4, 6).to(dtype)
    products = torch.einsum("nd,ckd->cnk", x, torch.nn.functional.normalize(proxies, dim=-1))
    for gamma, expected in ((1e-9, products.amax(dim=2)), (1e9, products.mean(dim=2))):
        got = class_similarity(proxies, x, gamma).similarity
        torch.testing.assert_close(got, expected)
        gradients = [torch.autograd.grad(s.square().sum(), x, retain_graph=True)[0] for s in (got, expected)]
        torch.testing.assert_close(*gradients)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0.5, 64), st.floats(-0.5, 0.5))
def test_all_pairs_lies_between_its_parts_and_data_wise(seed, count, alpha, margin):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 4, generator=generator)
    labels = torch.randint(0, 5, (8,), generator=generator)
    proxies = torch.randn(5, count, 4, generator=generator)
    losses = [MultiProxyAnchorLoss(5, 4, count, v, alpha, margin) for v in ("data", "all-pairs")]
    data, pairs = (set_proxies(loss, proxies)(x, labels).item() for loss in losses)
    assert pairs <= data + 1e-4
    assert 2 * pairs >= data - 1e-4  # each of data's two parts is at most all-pairs'


@pytest.mark.parametrize("seed", range(3))
def test_order_of_proxies_and_of_the_batch_change_nothing(seed):
    generator = torch.Generator().manual_seed(seed)
    x = embeddings()
    shuffled = torch.randperm(len(x), generator=generator)
    for loss in every_loss():
        before = loss(x, LABELS)
        if loss.proxies.ndim == 3:
            order = torch.stack([torch.randperm(3, generator=generator) for _ in range(5)])
            set_proxies(loss, loss.proxies.detach().gather(1, order[:, :, None].expand(-1, -1, 6)))
        torch.testing.assert_close(loss(x[shuffled], LABELS[shuffled]), before)


def peer_of(loss):
    """Return pytorch-metric-learning's loss with the same proxies."""
    classes, dim = loss.proxies.shape[0], loss.proxies.shape[-1]
    weights = loss.proxies.detach().reshape(-1, dim)
    if isinstance(loss, SoftTripleLoss):
        reg = peer_regularizers.SparseCentersRegularizer(classes, 3)
        theirs = peer.SoftTripleLoss(
            classes, dim, 3, la=20, gamma=0.1, margin=0.01, weight_regularizer=reg, weight_reg_weight=0.2
        ).double()
        theirs.fc.data = weights.T.clone()
        return theirs, theirs.fc, lambda gradient: gradient.T.reshape(loss.proxies.shape)
    kind = peer.ProxyAnchorLoss if isinstance(loss, ProxyAnchorLoss) else peer.ProxyNCALoss
    theirs = kind(classes, dim) if kind is peer.ProxyAnchorLoss else kind(classes, dim, softmax_scale=9)
    theirs = theirs.double()
    theirs.proxies.data = weights.clone()
    return theirs, theirs.proxies, lambda gradient: gradient


@pytest.mark.parametrize(
    "loss",
    [
        ProxyAnchorLoss(5, 6),
        SoftTripleLoss(5, 6, 3, regularizer_eps=torch.finfo(torch.float64).tiny),
        ProxyNCALoss(5, 6, 1 / 9, probability=True),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_equals_pytorch_metric_learning(loss):
    loss = loss.double()
    theirs, weights, arrange = peer_of(loss)
    x = embeddings().requires_grad_()
    ours, other = loss(x, LABELS), theirs(x, LABELS)
    torch.testing.assert_close(ours, other)
    ours_x, ours_w = torch.autograd.grad(ours, (x, loss.proxies))
    other_x, other_w = torch.autograd.grad(other, (x, weights))
    torch.testing.assert_close(ours_x, other_x)
    torch.testing.assert_close(ours_w, arrange(other_w))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_finite_at_the_extremes(dtype):
    """Similarity 1 and -1, one class, one sample, none, identical proxies; the gradients too."""
    axes = torch.eye(6)
    batches = [
        (axes[:5], torch.arange(5)),
        (-axes[:5], torch.arange(5)),
        (axes[[0, 0, 0]], torch.tensor([0, 0, 0])),
        (-axes[:1], torch.tensor([3])),
        (axes[:0], torch.arange(0)),
    ]
    for loss in every_loss(torch.float32):
        set_proxies(loss, axes[:5, None].expand(5, 3, 6) if loss.proxies.ndim == 3 else axes[:5])
        for raw, labels in batches:
            x = raw.to(dtype).requires_grad_()
            loss.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                value = loss(x, labels)
            value.backward()
            assert value.dtype == torch.float32
            assert value.isfinite()
            assert x.grad is not None
            assert x.grad.isfinite().all()
            assert loss.proxies.grad.isfinite().all()


def test_one_class_has_nothing_to_be_told_from():
    x, labels = embeddings(), torch.zeros(len(LABELS), dtype=torch.int64)
    assert SoftTripleLoss(1, 6, 2, regularizer=0.0).double()(x, labels).item() == 0
    for variant in VARIANTS:
        assert MultiProxyAnchorLoss(1, 6, 2, variant).double()(x, labels).isfinite()


def test_bfloat16_embeddings_are_computed_in_float32():
    x = embeddings().bfloat16()
    for loss in every_loss(torch.float32):
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(x, LABELS)
        torch.testing.assert_close(value, loss(x.float(), LABELS))


def test_nearly_identical_proxies_pull_with_a_bounded_force():
    """The distance of two proxies has slope 1 however near they are; its root must not make more of it."""
    start = torch.nn.functional.normalize(torch.randn(5, 1, 6), dim=-1)
    for noise in (1e-2, 1e-3, 1e-4, 1e-6, 0.0):
        loss = MultiProxyAnchorLoss(5, 6, 2, alpha=1e-9, regularizer=1.0)
        set_proxies(loss, start + noise * torch.randn(5, 2, 6))
        loss(embeddings().float(), LABELS).backward()
        assert loss.proxies.grad is not None
        assert loss.proxies.grad.norm(dim=-1).max() * 5 * 2 < 1.5


def test_regulariser_merges_proxies_and_they_are_counted():
    """Three proxies of a class start apart; with nothing but the regulariser they become one centre."""
    torch.manual_seed(0)
    loss = MultiProxyAnchorLoss(4, 8, 3, alpha=1e-9, regularizer=1.0)
    assert distinct_centres(loss.proxies).tolist() == [3, 3, 3, 3]
    optimizer = torch.optim.Adam(loss.parameters(), 1e-2)
    x, labels = torch.randn(8, 8), torch.arange(8) % 4
    for _ in range(300):
        optimizer.zero_grad()
        loss(x, labels).backward()
        optimizer.step()
    assert distinct_centres(loss.proxies).tolist() == [1, 1, 1, 1]


def test_centres_are_joined_by_chains_but_not_across_gaps():
    angles = torch.tensor([[0.0, 0.24, 0.08, 0.16, 1.0], [0.0, 1.0, 2.0, 3.0, 4.0]])
    proxies = 7 * torch.stack([angles.cos(), angles.sin()], dim=-1)
    assert distinct_centres(proxies).tolist() == [2, 5]
    assert distinct_centres(proxies, distance=0.01).tolist() == [5, 5]
    assert distinct_centres(proxies[:, 0]).tolist() == [1, 1]


def test_several_proxies_fit_classes_of_several_modes():
    """SPEC's toy: 8 classes of 3 modes each, a linear map; held-out samples go to the class of highest S."""
    accuracy = {}
    for count in (1, 4):
        torch.manual_seed(0)
        modes = torch.nn.functional.normalize(torch.randn(8, 3, 12), dim=-1)
        labels = torch.arange(8).repeat_interleave(60)
        draw = torch.randint(0, 3, (2, 480))
        train, test = (modes[labels, pick] + 0.15 * torch.randn(480, 12) for pick in draw)
        net, loss = torch.nn.Linear(12, 8), MultiProxyAnchorLoss(8, 8, count)
        optimizer = torch.optim.AdamW(
            [{"params": net.parameters(), "lr": 1e-2}, {"params": loss.parameters(), "lr": 1e-2}]
        )
        for _ in range(300):
            rows = torch.randint(0, 480, (64,))
            optimizer.zero_grad()
            loss(net(train[rows]), labels[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            x = torch.nn.functional.normalize(net(test), dim=1)
            found = class_similarity(loss.proxies, x, 0.1).similarity.argmax(dim=0)
        accuracy[count] = float((found == labels).float().mean())
    assert accuracy[4] > accuracy[1] + 0.05


def test_memory_stays_near_one_matrix_of_similarities():
    """20,000 classes: what is kept for the backward pass is one matrix (C, N), with K = 2 two more."""
    x, labels = torch.randn(64, 32, requires_grad=True), torch.arange(64)
    for count, matrices in ((1, 1), (2, 3)):
        loss = MultiProxyAnchorLoss(20_000, 32, count, "data")
        kept = 0

        def count_bytes(tensor, known=loss.proxies):
            nonlocal kept
            kept += 0 if tensor.data_ptr() == known.data_ptr() else tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count_bytes, lambda tensor: tensor):
            loss(x, labels)
        assert kept < 1.1 * matrices * 20_000 * 64 * 4


def test_wrong_use_is_named():
    with pytest.raises(ValueError, match=r"variant must be 'class', 'data' or 'all-pairs', got 'DW'"):
        MultiProxyAnchorLoss(3, 4, variant="DW")
    with pytest.raises(ValueError, match=r"proxies_per_class must be a whole number of at least 1, or auto, got 0"):
        SoftTripleLoss(3, 4, 0)
    with pytest.raises(ValueError, match=r"gamma must be greater than 0, got 0"):
        SoftTripleLoss(3, 4, gamma=0)
    with pytest.raises(ValueError, match=r"num_classes must be at least 2"):
        ProxyNCALoss(1, 4)
    loss = MultiProxyAnchorLoss(3, 4)
    with pytest.raises(ValueError, match=r"MultiProxyAnchorLoss .* takes no indices_tuple or ref_emb"):
        loss(torch.randn(2, 4), torch.tensor([0, 1]), (torch.tensor([0]),))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"float embeddings and integer labels, got torch.float32 and torch.float32"):
        loss(torch.randn(2, 4), torch.tensor([0.0, 1.0]))


def test_auto_starts_with_ten():
    assert MultiProxyAnchorLoss(3, 4, "auto").proxies.shape == (3, 10, 4)
    assert SoftTripleLoss(3, 4, "auto").proxies.shape == (3, 10, 4)


def test_proxies_start_isotropic_at_unit_length():
    proxies = MultiProxyAnchorLoss(200, 64, 4).proxies.detach()
    assert proxies.norm(dim=-1).mean() == pytest.approx(1, abs=0.02)
    assert proxies.mean(dim=(0, 1)).norm() < 0.1
