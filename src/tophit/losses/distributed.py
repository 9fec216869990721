"""Losses over many processes: each computes the loss of the joined batch, with the gradients of a single process."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class GatheredLoss(nn.Module):
    """Computes a loss on the joined batch of all processes; with one process it is just that loss.

    Every process gets the same value: the loss of the joined batch, ranks in order. The gradient at a process's
    own embeddings is the joined batch's times the number of processes, because DistributedDataParallel divides
    parameter gradients by that number: after it, they are those of one process with the joined batch.
    Batches may differ in length. Wrap a loss that has parameters, such as proxies, as well:
    ``DistributedDataParallel(GatheredLoss(loss))`` starts them equal everywhere. Every process already has the joined
    batch's gradient for them, and the mean of equal gradients is the same.

    >>> from tophit.losses import PNPLoss
    >>> GatheredLoss(PNPLoss())(torch.randn(8, 4), torch.arange(8) // 2).shape
    torch.Size([])
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of all processes' embeddings (N, d) with labels (N,)."""
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            embeddings, labels = gather_batches(embeddings, labels)
        return self.loss(embeddings, labels)


def gather_batches(embeddings: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the embeddings (sum of N, d) and labels of all processes, in the order of their ranks.

    In the backward pass each process receives the gradients that all of them have for its rows, summed.
    """
    sizes = _lengths(embeddings)
    return _Gather.apply(embeddings, sizes), torch.cat(all_gather_rows(labels, sizes))  # type: ignore[return-value]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embeddings: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        ctx.sizes = sizes
        return torch.cat(all_gather_rows(embeddings, sizes))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor, None]:
        total = grad_outputs[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total.split(ctx.sizes)[dist.get_rank()], None


def _lengths(tensor: torch.Tensor) -> list[int]:
    """Return the number of rows of each process."""
    own = torch.tensor([len(tensor)], device=tensor.device)
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    return [int(size) for size in torch.cat(every)]


def all_gather_rows(tensor: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
    """Return every process's tensor, of these lengths; they are sent padded, because all_gather needs equal shapes."""
    padded = tensor.new_zeros(max(sizes), *tensor.shape[1:])
    padded[: len(tensor)] = tensor.detach()
    every = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(every, padded)
    return [part[:size] for part, size in zip(every, sizes, strict=True)]
