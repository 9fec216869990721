"""Matryoshka: a loss over nested prefixes of the vector, so that its first numbers alone are a good vector too."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from tophit.errors import UsageError


class PrefixLoss(nn.Module):
    """The mean of a loss over nested prefixes of the vectors (Kusupati et al., NeurIPS 2022).

    ``make`` makes the loss of vectors of a length; proxies are learned for each length. Each prefix is compared as a
    vector of its own: a loss on unit vectors normalises it again. Shapes: embeddings (N, d), d the longest length, and
    whatever labels and further arguments the loss takes; a memory ``ref_emb`` (M, d) is cut as well.

    >>> from tophit.losses import TripletLoss
    >>> loss = PrefixLoss(lambda length: TripletLoss(), (2, 4))
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])).shape
    torch.Size([])
    """

    def __init__(self, make: Callable[[int], nn.Module], lengths: Sequence[int]) -> None:
        super().__init__()
        self.lengths = sorted(lengths)
        self.losses = nn.ModuleList([make(length) for length in self.lengths])
        self.normalize = getattr(self.whole, "normalize", False)
        self.restriction = getattr(self.whole, "restriction", None)
        self.takes_paths = getattr(self.whole, "takes_paths", False)

    @property
    def whole(self) -> nn.Module:
        """The loss of whole vectors."""
        return self.losses[-1]

    @property
    def used(self) -> int | None:
        """How many pairs or triplets the last call compared, of the whole vectors."""
        return getattr(self.whole, "used", None)

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor, *chosen: Any, **others: Any) -> torch.Tensor:
        """Return the mean over the prefixes of the loss of embeddings (N, d) with labels (N,)."""
        values = []
        for length, loss in zip(self.lengths, self.losses, strict=True):
            cut = {name: each[:, :length] if name == "ref_emb" else each for name, each in others.items()}
            values.append(loss(embeddings[:, :length], labels, *chosen, **cut))
        return torch.stack(values).mean()


def prefix_lengths(prefixes: Sequence[int], dim: int) -> list[int]:
    """Return the lengths to learn: the prefixes and the whole vector; raise if one is longer than it."""
    longer = [length for length in prefixes if length > dim]
    if longer:
        raise UsageError(
            f"loss.prefixes: {longer[0]} is longer than the vectors, which have {dim} numbers (embedder.dim)."
        )
    return sorted({*prefixes, dim})
