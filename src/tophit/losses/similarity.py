"""The similarity matrix of a batch, with a backward pass that keeps full precision and saves a product."""

from typing import Any

import torch

from tophit.losses.loss import eager


@eager
def similarity_matrix(queries: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    """Return the inner products (Q, N) of queries (Q, d) and candidates (N, d); pass one tensor twice for a batch.

    Both passes ignore autocast, because a temperature magnifies rounding errors.
    If both are the same tensor, the gradient (G + G^T) x takes one product instead of two.
    """
    return _Similarity.apply(queries, None if candidates is queries else candidates)  # type: ignore[return-value]


class _Similarity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: torch.Tensor, candidates: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(queries, candidates)
        with torch.autocast(queries.device.type, enabled=False):
            return queries @ (queries if candidates is None else candidates).T

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        queries, candidates = ctx.saved_tensors
        (grad,) = grad_outputs
        with torch.autocast(grad.device.type, enabled=False):
            if candidates is None:
                return (grad + grad.T) @ queries, None
            by_candidates = grad.T @ queries if ctx.needs_input_grad[1] else None
            return grad @ candidates if ctx.needs_input_grad[0] else None, by_candidates
