"""The networks of THSG beside the embedder: two generators, their discriminators, and the shared classifier."""

import torch
from torch import nn
from torch.nn import functional


class Generator(nn.Module):
    """Two linear layers from a vector (..., d) to a unit vector of the same length."""

    def __init__(self, dim: int, width: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map vectors (..., d) to unit vectors (..., d)."""
        return functional.normalize(self.layers(x), dim=-1)


def discriminator(dim: int, classes: int, width: int = 512) -> nn.Module:
    """Return two linear layers from vectors (..., dim) to logits (..., classes)."""
    return nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, classes))


class GenerationNetworks(nn.Module):
    """All networks of THSG but the embedder, for C classes and embeddings of length d.

    ``classifier`` (d to C) is shared: it is learned with the embedder and judges what the generators make. ``g1``
    and ``g2`` are d to d. ``d1`` takes a sample beside its stretched form: 2 d to (generated, real).
    ``d2`` is d to C + 1.
    """

    def __init__(self, classes: int, dim: int, generator_width: int = 128, discriminator_width: int = 512) -> None:
        super().__init__()
        self.classifier = nn.Linear(dim, classes)
        self.g1 = Generator(dim, generator_width)
        self.d1 = discriminator(2 * dim, 2, discriminator_width)
        self.g2 = Generator(dim, generator_width)
        self.d2 = discriminator(dim, classes + 1, discriminator_width)
