"""Stochastic depth: in training, residual branches are left out at random (Huang et al., ECCV 2016)."""

import torch
from torch import nn


class StochasticDepth(nn.Module):
    """Maps a residual branch (N, C, h, w) to itself, or in training to 0 for a share ``rate`` of the images.

    What remains is divided by 1 - rate, so that its mean is the branch's and evaluation needs no change.
    """

    rate = 0.0

    def forward(self, branch: torch.Tensor) -> torch.Tensor:
        """Return the branch, without that of some images."""
        if not self.training or not self.rate:
            return branch
        kept = torch.rand(len(branch), 1, 1, 1, device=branch.device) >= self.rate
        return branch * (kept / (1 - self.rate))


def set_stochastic_depth(backbone: nn.Module, rate: float) -> int:
    """Let the rate grow linearly over the residual blocks to ``rate`` at the last one (Eq. 4); return their number."""
    branches = [module for module in backbone.modules() if isinstance(module, StochasticDepth)]
    for number, branch in enumerate(branches, 1):
        branch.rate = rate * number / len(branches)
    return len(branches)
