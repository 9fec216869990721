"""What the pair losses have in common: their arguments, unit vectors where wanted, full precision."""

from abc import ABC, abstractmethod

import torch
from torch import nn

from tophit.losses.candidates import IndicesTuple
from tophit.losses.pairwise.tuples import Pair, Triplet, Tuples, read_tuples


class PairLoss(nn.Module, ABC):
    """A loss over chosen pairs or triplets of a batch, or all of them; a subclass's equation is in ``compute``."""

    def __init__(self, normalize: bool) -> None:
        super().__init__()
        self.normalize = normalize

    @abstractmethod
    def compute(self, tuples: Tuples) -> torch.Tensor:
        """Return the loss, a scalar, of a batch and the tuples chosen in it."""

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        indices_tuple: IndicesTuple | None = None,
        ref_emb: torch.Tensor | None = None,
        ref_labels: torch.Tensor | None = None,
        pairs: Pair | None = None,
        triplets: Triplet | None = None,
    ) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with labels (N,), in float32 at least."""
        with torch.autocast(embeddings.device.type, enabled=False):
            arguments = (embeddings, labels, indices_tuple, ref_emb, ref_labels, pairs, triplets)
            return self.compute(read_tuples(*arguments, self.normalize))
