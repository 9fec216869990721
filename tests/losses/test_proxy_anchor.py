import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from tophit.losses import ProxyAnchorLoss

CASE = json.loads((Path(__file__).parents[1] / "golden" / "proxy_anchor.json").read_text())["cases"][0]


def literal_proxy_anchor(x: np.ndarray, proxies: np.ndarray, labels: list[int], alpha: float, margin: float) -> float:
    """Equation 4 of Kim et al. (2020), term by term."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    proxies = proxies / np.linalg.norm(proxies, axis=1, keepdims=True)
    pull, push = 0.0, 0.0
    for c, proxy in enumerate(proxies):
        own = sum(math.exp(-alpha * (v @ proxy - margin)) for v, y in zip(x, labels, strict=True) if y == c)
        others = sum(math.exp(alpha * (v @ proxy + margin)) for v, y in zip(x, labels, strict=True) if y != c)
        pull += math.log(1 + own)
        push += math.log(1 + others)
    return pull / len(set(labels)) + push / len(proxies)


def with_proxies(proxies: torch.Tensor, **settings: float) -> ProxyAnchorLoss:
    loss = ProxyAnchorLoss(*proxies.shape, **settings).to(proxies.dtype)
    with torch.no_grad():
        loss.proxies.copy_(proxies)
    return loss


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-5)])
def test_golden_value_and_gradients(dtype: torch.dtype, tolerance: float) -> None:
    x = torch.tensor(CASE["inputs"]["x_raw"], dtype=dtype, requires_grad=True)
    proxies = torch.tensor(CASE["inputs"]["w_raw"], dtype=dtype).squeeze(1)
    loss = with_proxies(proxies, alpha=CASE["params"]["alpha"], margin=CASE["params"]["delta"])
    value = loss(x, torch.tensor(CASE["inputs"]["labels"]))
    value.backward()
    expected = CASE["outputs"]
    assert value.item() == pytest.approx(expected["total"], rel=tolerance)
    assert x.grad is not None
    assert loss.proxies.grad is not None
    for ours, theirs in ((x.grad, expected["grad_x_raw"]), (loss.proxies.grad, expected["grad_w_raw"])):
        target = np.asarray(theirs).reshape(ours.shape)
        np.testing.assert_allclose(ours.numpy(), target, atol=tolerance * max(1, np.abs(target).max()))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_printed_equation_on_shuffled_and_unequal_batches(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, proxies = random.normal(size=(9, 5)), random.normal(size=(6, 5))
    labels = random.integers(0, 6, 9).tolist()
    loss = with_proxies(torch.tensor(proxies), alpha=8.0, margin=0.2)
    assert loss(torch.tensor(x), torch.tensor(labels)).item() == pytest.approx(
        literal_proxy_anchor(x, proxies, labels, 8.0, 0.2), rel=1e-12
    )


def test_gradcheck() -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    loss = ProxyAnchorLoss(4, 3, alpha=4.0).double()
    labels = torch.tensor([0, 1, 1, 3, 0])
    assert torch.autograd.gradcheck(lambda a, _: loss(a, labels), (x, loss.proxies))


def test_it_is_finite_at_the_extremes() -> None:
    """Similarity 1 and -1 at alpha 32, one class, one image, an empty batch, bf16 autocast."""
    loss = with_proxies(torch.eye(4)[:3])
    right, wrong = torch.eye(4)[[0, 1]], -torch.eye(4)[[0, 1]]
    labels = torch.tensor([0, 1])
    assert loss(right, labels) < loss(wrong, labels) < 80
    for x, y in ((right[:1], labels[:1]), (right, torch.tensor([0, 0])), (right[:0], labels[:0])):
        x = x.clone().requires_grad_()
        value = loss(x, y)
        value.backward()
        assert value.isfinite()
        assert x.grad is not None
        assert x.grad.isfinite().all()
    with torch.autocast("cpu", torch.bfloat16):
        assert loss(right.bfloat16(), labels).dtype == torch.float32


def test_raw_embeddings_are_normalised_unless_told_not_to() -> None:
    torch.manual_seed(0)
    x, labels = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])
    proxies = torch.randn(3, 4)
    torch.testing.assert_close(with_proxies(proxies)(x, labels), with_proxies(5 * proxies)(3 * x, labels))
    raw = ProxyAnchorLoss(3, 4, normalize=False)
    assert not torch.isclose(raw(x, labels), raw(3 * x, labels))


def test_wrong_shapes_and_labels_are_named() -> None:
    loss = ProxyAnchorLoss(3, 4)
    with pytest.raises(ValueError, match=r"expected embeddings \(N, 4\) and labels \(N,\), got \(2, 5\) and \(2,\)"):
        loss(torch.randn(2, 5), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="takes no indices_tuple or ref_emb"):
        loss(torch.randn(2, 4), torch.tensor([0, 1]), None, torch.randn(3, 4), torch.tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="labels must be from 0 to 2, got 0 to 3"):
        loss(torch.randn(2, 4), torch.tensor([0, 3]))
