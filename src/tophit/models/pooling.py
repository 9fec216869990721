"""Pooling: from a feature map (N, C, h, w) to one vector (N, C) an image."""

import torch
from torch import nn


class AveragePooling(nn.Module):
    """The mean over all places."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, C, h, w) to (N, C)."""
        return x.mean(dim=(2, 3))


class GeMPooling(nn.Module):
    """Generalised mean, (mean x^p)^(1/p): p = 1 is the average, p to infinity the maximum. p is fixed."""

    def __init__(self, p: float = 3.0, least: float = 1e-6) -> None:
        super().__init__()
        self.p = p
        self.least = least

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, C, h, w) to (N, C); values below ``least`` count as ``least``."""
        return x.clamp(min=self.least).pow(self.p).mean(dim=(2, 3)).pow(1 / self.p)


def build_pooling(name: str, p: float = 3.0) -> nn.Module:
    """Return the pooling a recipe names: ``average`` or ``gem``."""
    return {"average": AveragePooling(), "gem": GeMPooling(p)}[name]
