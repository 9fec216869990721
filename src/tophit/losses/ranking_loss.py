"""What the ranking losses have in common: their arguments, who ranks whom, full precision."""

from abc import ABC, abstractmethod

import torch
from torch import nn

from tophit.losses.candidates import Candidates, IndicesTuple, find_candidates


class RankingLoss(nn.Module, ABC):
    """A loss of how each query ranks its candidates; a subclass's equation is in ``compute``."""

    def __init__(self, normalize: bool) -> None:
        super().__init__()
        self.normalize = normalize

    @abstractmethod
    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the loss, a scalar, of queries and their candidates."""

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        indices_tuple: IndicesTuple | None = None,
        ref_emb: torch.Tensor | None = None,
        ref_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with labels (N,), in float32 at least."""
        with torch.autocast(embeddings.device.type, enabled=False):
            arguments = (embeddings, labels, indices_tuple, ref_emb, ref_labels)
            return self.compute(find_candidates(*arguments, self.normalize))
