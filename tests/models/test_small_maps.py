"""Convolutions of small maps against ``conv2d``: the same values and gradients."""

import pytest
import torch
from torch.nn import functional

from tophit.models.backbones import build_backbone
from tophit.models.efficientnet_lite import SameConv
from tophit.models.small_maps import depthwise, learns_on_small_maps, pointwise

SHAPES = [(2, 2), (1, 3), (4, 4), (3, 5), (7, 7)]


def _gradients(function, x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    found = function(x, weight)
    slopes = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).view(found.shape)
    found.backward(slopes)
    assert x.grad is not None
    assert weight.grad is not None
    return found.detach(), x.grad, weight.grad


@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize(("height", "width"), SHAPES)
def test_a_depthwise_filter_has_the_values_and_gradients_of_conv2d(height: int, width: int, kernel: int) -> None:
    channels = 60_000 // (height * width)  # so many that the sum is made in several parts
    x = torch.randn(6, channels, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(channels, 1, kernel, kernel, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = _gradients(lambda x, w: functional.conv2d(x, w, None, 1, kernel // 2, 1, channels), x, weight)
    for layout in (torch.contiguous_format, torch.channels_last):
        for found, literal in zip(
            _gradients(depthwise, x.contiguous(memory_format=layout), weight), expected, strict=True
        ):
            torch.testing.assert_close(found, literal)


def test_a_pointwise_filter_has_the_values_and_gradients_of_conv2d() -> None:
    x = torch.randn(3, 5, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(7, 5, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for found, literal in zip(_gradients(pointwise, x, weight), _gradients(functional.conv2d, x, weight), strict=True):
        torch.testing.assert_close(found, literal)


def test_bf16_keeps_the_sums_in_float32() -> None:
    x = torch.randn(64, 32, 4, 4, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(32, 1, 5, 5, generator=torch.Generator().manual_seed(1))
    _, _, exact = _gradients(depthwise, x, weight)
    with torch.autocast("cpu", torch.bfloat16):
        found, _, rounded = _gradients(depthwise, x, weight)
    assert found.dtype == torch.bfloat16
    assert rounded.dtype == torch.float32
    assert (rounded - exact).norm() < 0.01 * exact.norm()


def test_a_network_learns_the_same_as_with_torchs_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    network = build_backbone("efficientnet-lite0", "random").train()
    images = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))

    def gradients() -> list[torch.Tensor]:
        network.zero_grad()
        network(images).square().mean().backward()
        return [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]

    ours = gradients()
    monkeypatch.setattr("tophit.models.efficientnet_lite.learns_on_small_maps", lambda x, weight: False)
    for found, literal in zip(ours, gradients(), strict=True):
        assert (found - literal).norm() <= 1e-3 * literal.norm() + 1e-6


def test_frozen_filters_and_inference_stay_torchs() -> None:
    x, convolution = torch.rand(1, 8, 2, 2), SameConv(8, 8, 5, groups=8, bias=False)
    assert learns_on_small_maps(x, convolution.weight)
    with torch.no_grad():
        assert not learns_on_small_maps(x, convolution.weight)
    assert not learns_on_small_maps(torch.rand(1, 8, 14, 14), convolution.weight)
    assert not learns_on_small_maps(x, convolution.weight.detach())
