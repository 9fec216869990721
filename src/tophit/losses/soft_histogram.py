"""Soft histograms: every value counts in the two bins around it, in proportion to its nearness. FastAP's and the
histogram loss's core.

With bin centres t_0 .. t_L from ``low`` to ``high``, a step D apart, a value v counts in bin l with

    delta_l(v) = max(0, 1 - |v - t_l| / D)

which is not zero in two adjacent bins only. Between two centres it is linear, so the number of values there and their
sum tell what they add to both bins, and the gradient of a value is the difference of the bins' gradients. Rows are
counted some at a time, while they are in the processor's cache: time and memory are of the order of the values, where
the sum over all bins takes L times as much.
"""

from typing import Any

import torch

from tophit.losses.loss import eager

_CHUNK = 1 << 18  # values looked at at a time


@eager
def soft_histograms(
    values: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, bins: int, low: float, high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the histograms of the positive and of the negative values of each row of (Q, N), each (Q, bins + 1).

    Both are masks (Q, N), and no value is in both. Values beyond the ends count there. Differentiable once, in the
    values.
    """
    found = _SoftHistograms.apply(values, positive, negative, bins, low, high)
    return found[:, 0], found[:, 1]  # type: ignore[index]


class _SoftHistograms(torch.autograd.Function):
    """Keeps for each value its histogram and bin, as one number."""

    @staticmethod
    def forward(
        ctx: Any,
        values: torch.Tensor,
        positive: torch.Tensor,
        negative: torch.Tensor,
        bins: int,
        low: float,
        high: float,
    ) -> torch.Tensor:
        scale = bins / (high - low)
        rows = max(1, _CHUNK // max(1, values.shape[1]))
        counts = values.new_zeros(len(values), 3, bins + 1)  # the third is for values in neither
        slots = torch.empty(values.shape, dtype=torch.int32, device=values.device)
        for start in range(0, len(values), rows):
            part = slice(start, start + rows)
            place = ((values[part] - low) * scale).clamp_(0, bins)
            lower = place.nan_to_num(0).clamp_(max=bins - 1).to(torch.int32)  # rounded down; NaN stays in the place
            kind = 2 - 2 * positive[part].to(torch.int32) - negative[part].to(torch.int32)
            slots[part] = lower + kind * (bins + 1)
            counts[part] = _counted(slots[part], place - lower, counts[part])
        ctx.save_for_backward(values, slots)
        ctx.scale, ctx.ends, ctx.rows = scale, (low, high), rows
        return counts[:, :2]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        values, slots = ctx.saved_tensors
        (grad,) = grad_outputs
        by_place = torch.zeros(len(grad), 3, grad.shape[2], dtype=grad.dtype, device=grad.device)
        by_place[:, :2, :-1] = grad.diff(dim=2) * ctx.scale
        by_place = by_place.flatten(1)
        gradient = torch.empty_like(values)
        low, high = ctx.ends
        for start in range(0, len(values), ctx.rows):
            part = slice(start, start + ctx.rows)
            held = by_place[part].gather(1, slots[part].long())
            gradient[part] = held.masked_fill_((values[part] < low) | (values[part] > high), 0)
        return gradient, None, None, None, None, None


def _counted(slots: torch.Tensor, upper: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the counts (c, 3, bins + 1), like the given ones, of values with slots (c, N).

    ``upper`` (c, N) is the share of each that counts in the bin above its own.
    """
    rows, _, width = like.shape
    flat = (slots + 3 * width * torch.arange(rows, dtype=torch.int32, device=slots.device)[:, None]).flatten()
    many = torch.bincount(flat, minlength=like.numel()).view(like.shape)
    above = torch.bincount(flat, upper.flatten().double(), minlength=like.numel()).view(like.shape)
    found = many - above
    found[:, :, 1:] += above[:, :, :-1]
    return found.to(like.dtype)
