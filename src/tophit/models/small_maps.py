"""Convolutions of a network's last stages, trained on a CPU: there, maps of a few pixels meet more than 1000 channels.

torch's kernels are made for larger maps. The gradient of a depthwise filter of 5 x 5 weights takes half of a training
step at 4 x 4 pixels, and in bf16 twice as long as in float32. Here it is a sum over the filter's positions, and a
convolution of 1 x 1 is the matrix product that it is. Values and gradients are those of ``conv2d``, but for rounding.
"""

from typing import Any

import torch
from torch.nn import functional

_FEW_PIXELS = 49  # 7 x 7: the last stages at 224 pixels
_CHUNK = 1 << 18  # numbers of a map that are multiplied at once: they stay in a core's cache


def learns_on_small_maps(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return whether a filter learns here, from maps (N, C, H, W) of few pixels on a CPU."""
    few = x.shape[2] * x.shape[3] <= _FEW_PIXELS
    return few and x.device.type == "cpu" and weight.requires_grad and torch.is_grad_enabled()


def pointwise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return ``conv2d`` of maps (N, C, H, W) with a filter (D, C, 1, 1), as a product over channels."""
    return functional.linear(x.permute(0, 2, 3, 1), weight.flatten(1)).permute(0, 3, 1, 2)


def is_slow_depthwise(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Return whether torch is slow at the gradient of a depthwise filter (C, 1, k, k): a wide one, or a wider map."""
    return weight.shape[2] > min(3, x.shape[2] - 1, x.shape[3] - 1)


def depthwise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return ``conv2d`` of each channel of maps (N, C, H, W) with its own filter (C, 1, k, k), k odd, of equal size."""
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    return _Depthwise.apply(x, weight)  # type: ignore[return-value]


class _Depthwise(torch.autograd.Function):
    """A depthwise convolution whose filter has its gradient from :func:`_filter_gradient`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return functional.conv2d(x, weight, None, 1, weight.shape[2] // 2, 1, len(weight))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        (grad,) = grad_outputs
        # The gradient at the maps is the same convolution with the filter turned around.
        at_maps = functional.conv2d(grad, weight.flip(2, 3), None, 1, weight.shape[2] // 2, 1, len(weight))
        return at_maps if ctx.needs_input_grad[0] else None, _filter_gradient(x, grad, weight)


def _filter_gradient(x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the gradient (C, 1, k, k) of a filter: at each of its positions, maps times shifted gradients, summed."""
    height, width, reach = x.shape[2], x.shape[3], weight.shape[2] // 2
    exact = torch.promote_types(weight.dtype, torch.float32)  # sums in bf16 would lose most of their digits
    found = torch.zeros(*weight.shape[2:], len(weight), dtype=exact)
    together = max(1, _CHUNK // x[0].numel())
    for maps, slopes in zip(x.split(together), grad.split(together), strict=True):
        maps, slopes = maps.permute(0, 2, 3, 1), slopes.permute(0, 2, 3, 1)
        for down in range(-min(reach, height - 1), min(reach, height - 1) + 1):
            for right in range(-min(reach, width - 1), min(reach, width - 1) + 1):
                moved = maps[:, max(down, 0) : height + min(down, 0), max(right, 0) : width + min(right, 0)]
                there = slopes[:, max(-down, 0) : height + min(-down, 0), max(-right, 0) : width + min(-right, 0)]
                found[down + reach, right + reach] += (moved * there).sum((0, 1, 2), dtype=exact)
    return found.permute(2, 0, 1).unsqueeze(1).to(weight.dtype)
