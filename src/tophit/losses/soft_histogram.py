"""Soft histograms: every value counts in the two bins around it, in proportion to its nearness. FastAP's and the
histogram loss's core.

With bin centres t_0 .. t_L from ``low`` to ``high``, a step D apart, a value v counts in bin l with

    delta_l(v) = max(0, 1 - |v - t_l| / D)

which is not zero in two adjacent bins only. So values are dealt to two bins each, in time and memory of the order of
the values, where the sum over all bins takes L times as much.
"""

import torch

from tophit.losses.loss import eager


@eager
def soft_histograms(values: torch.Tensor, chosen: torch.Tensor, bins: int, low: float, high: float) -> torch.Tensor:
    """Return the histograms (Q, bins + 1) of the chosen values of each row of (Q, N).

    ``chosen`` is a mask (Q, N). Values beyond the ends count there. Differentiable in the values.
    """
    place = ((values - low) * (bins / (high - low))).clamp(0, bins)
    lower = place.detach().nan_to_num(0).floor().clamp(max=bins - 1)  # NaN stays in the shares
    upper_share = torch.where(chosen, place - lower, 0)
    lower_share = torch.where(chosen, 1 - (place - lower), 0)
    columns = lower.long()
    counts = values.new_zeros(len(values), bins + 1)
    return counts.scatter_add(1, columns, lower_share).scatter_add(1, columns + 1, upper_share)
