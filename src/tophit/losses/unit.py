"""Unit vectors, with a backward pass of two passes over memory: for a hundred thousand proxies it counts."""

from typing import Any

import torch

from tophit.losses.eager import eager


@eager
def unit(vectors: torch.Tensor) -> torch.Tensor:
    """Return vectors (..., d) divided by their lengths; a vector of zeros stays zeros. Differentiable once."""
    return _Unit.apply(vectors)  # type: ignore[return-value]


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: torch.Tensor) -> torch.Tensor:
        lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_(min=1e-12)
        units = vectors / lengths
        ctx.save_for_backward(units, lengths)
        return units

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return (g - (g.u) u) / length: what lies along a vector cannot change its direction."""
        units, lengths = ctx.saved_tensors
        (grad,) = grad_outputs
        along = torch.linalg.vecdot(grad, units).unsqueeze(-1)
        return torch.addcmul(grad, units, along, value=-1).div_(lengths)
