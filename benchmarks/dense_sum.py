"""A sum whose backward pass costs as much as a loss's."""

import torch


def dense_sum(matrix: torch.Tensor) -> torch.Tensor:
    """Return the sum of a matrix; its gradient is dense, like a loss's."""
    return _DenseSum.apply(matrix)  # type: ignore[return-value]


class _DenseSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, matrix: torch.Tensor) -> torch.Tensor:
        ctx.shape = matrix.shape  # type: ignore[attr-defined]
        return matrix.sum()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grad_outputs: torch.Tensor) -> torch.Tensor:
        return torch.ones(ctx.shape)  # type: ignore[attr-defined]
