"""Pooling: from a feature map (N, C, h, w), or tokens arranged as a map, to one vector per image (N, C)."""

import math

import torch
from torch import nn
from torch.nn import functional

from tophit.errors import UsageError
from tophit.models.text_facts import JOINT

POOLINGS = ("average", "max", "rmac", "gem", "cls")
_OVERLAP = 0.4  # of neighbouring regions, as in R-MAC's paper


class AveragePooling(nn.Module):
    """The mean over all positions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, C, h, w) to (N, C)."""
        if not x.requires_grad:
            return x.mean(dim=(2, 3))
        return x.permute(0, 2, 3, 1).mean(dim=(1, 2))  # so that its gradient has channels last, as the maps before it


class MaxPooling(nn.Module):
    """The maximum over all positions (MAC)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, C, h, w) to (N, C)."""
        return x.amax(dim=(2, 3))


class GeMPooling(nn.Module):
    """Generalised mean, (mean x^p)^(1/p): p = 1 is the average, p to infinity the maximum (Radenovic et al. 2018).

    With ``learn`` p is a parameter, kept at 1 or above.
    """

    def __init__(self, p: float = 3.0, least: float = 1e-6, learn: bool = False) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(float(p))) if learn else p
        self.least = least

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, C, h, w) to (N, C); values below ``least`` count as ``least``."""
        p = self.p if isinstance(self.p, float | int) else self.p.clamp(min=1.0)
        return x.clamp(min=self.least).pow(p).mean(dim=(2, 3)).pow(1 / p)


class RMACPooling(nn.Module):
    """The sum of the maxima of square regions at several scales, each normalised first (R-MAC, Tolias et al. 2016).

    The paper's PCA whitening of regions is left out: a linear head can learn that and more.
    """

    def __init__(self, levels: int = 3) -> None:
        super().__init__()
        self.levels = levels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, C, h, w) to (N, C)."""
        regions = rmac_regions(x.shape[2], x.shape[3], self.levels)
        maxima = [x[:, :, top : top + side, left : left + side].amax(dim=(2, 3)) for top, left, side in regions]
        return torch.stack([functional.normalize(region, dim=1) for region in maxima]).sum(dim=0)


class ClassTokenPooling(nn.Module):
    """The class token, which a vision transformer puts first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map tokens (N, T, C) to (N, C)."""
        return x[:, 0]


def rmac_regions(height: int, width: int, levels: int) -> list[tuple[int, int, int]]:
    """Return R-MAC's regions of a map as (top, left, side).

    At level l the side is 2 min(h, w) / (l + 1). There are l regions along the short side and l + m along the long
    one, m such that neighbours of the first level's size overlap by nearly 40%.
    """
    short, long = min(height, width), max(height, width)
    more = _regions_more(short, long)
    found: list[tuple[int, int, int]] = []
    for level in range(1, levels + 1):
        side = max(1, 2 * short // (level + 1))
        tops = _starts(height, side, level + (more if height > width else 0))
        lefts = _starts(width, side, level + (more if width > height else 0))
        found += [(top, left, side) for top in tops for left in lefts]
    return found


def _regions_more(short: int, long: int) -> int:
    if short == long:
        return 0
    overlaps = [1 - (long - short) / (count * short) for count in range(1, 7)]  # count + 1 squares along the long side
    return 1 + min(range(6), key=lambda i: abs(overlaps[i] - _OVERLAP))


def _starts(length: int, side: int, count: int) -> list[int]:
    if count == 1:
        return [0]
    return [math.floor(i * (length - side) / (count - 1)) for i in range(count)]


def as_map(x: torch.Tensor, prefix_tokens: int = 0) -> torch.Tensor:
    """Return tokens (N, T, C) as a map (N, C, h, w) without the first ``prefix_tokens``; a map is returned unchanged.

    Tokens that do not fill a square become a column.
    """
    if x.ndim == 4:
        return x
    x = x[:, prefix_tokens:].transpose(1, 2)
    count = x.shape[2]
    side = math.isqrt(count)
    return x.unflatten(2, (side, side) if side * side == count else (count, 1))


def build_pooling(name: str, p: float = 3.0, learn_p: bool = False, levels: int = 3) -> nn.Module:
    """Return the pooling a recipe names: one of ``POOLINGS``."""
    if name not in POOLINGS:
        raise UsageError(f"embedder.pooling: there is no pooling '{name}'; choices: {', '.join((*POOLINGS, JOINT))}.")
    if name == "gem":
        return GeMPooling(p, learn=learn_p)
    if name == "rmac":
        return RMACPooling(levels)
    return {"average": AveragePooling, "max": MaxPooling, "cls": ClassTokenPooling}[name]()
