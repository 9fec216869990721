"""A sum whose backward pass costs what a loss's would."""

import torch


def dense_sum(matrix: torch.Tensor) -> torch.Tensor:
    """Return the sum of a matrix; it hands back a dense gradient, as a loss does."""
    return _DenseSum.apply(matrix)  # type: ignore[return-value]


class _DenseSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, matrix: torch.Tensor) -> torch.Tensor:
        ctx.shape = matrix.shape  # type: ignore[attr-defined]
        return matrix.sum()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grad_outputs: torch.Tensor) -> torch.Tensor:
        return torch.ones(ctx.shape)  # type: ignore[attr-defined]
