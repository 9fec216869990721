"""A loss with a further term on the same batch: whatever takes the loss takes both."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class LossWithTerm(nn.Module, ABC):
    """loss + weight * term(unit vectors, labels). A memory (``ref_emb``) is compared by the loss alone."""

    def __init__(self, loss: nn.Module, weight: float) -> None:
        super().__init__()
        self.loss, self.weight = loss, weight
        self.normalize = getattr(loss, "normalize", False)
        self.restriction = getattr(loss, "restriction", None)

    @property
    def used(self) -> int | None:
        """How many pairs or triplets the loss compared in the last call."""
        return getattr(self.loss, "used", None)

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor, *chosen: Any, **others: Any) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with labels (N,), and the weighted term."""
        value = self.loss(embeddings, labels, *chosen, **others)
        if "ref_emb" in others:
            return value
        with torch.autocast(embeddings.device.type, enabled=False):
            return value + self.weight * self.term(functional.normalize(embeddings.float(), dim=1), labels)

    @abstractmethod
    def term(self, units: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the term of unit vectors (N, d) with labels as the loss takes them, a scalar."""
