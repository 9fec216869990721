"""Which pairs, triplets or tuples a projection gives to a loss: only those that involve a class representative."""

from typing import Any

import torch
from torch import nn

from tophit.losses.pairwise import (
    AngularLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    MarginLoss,
    NPairLoss,
    TripletLoss,
)
from tophit.mining import mine


def exemplars(
    loss: nn.Module, embeddings: torch.Tensor, labels: torch.Tensor, representative: torch.Tensor
) -> dict[str, Any]:
    """Return the arguments that restrict a loss to a projection's exemplars (PROFS paper, Sec. 5.3).

    - contrastive, margin, triplet: each representative with all its positives and as many nearest negatives.
    - lifted structure: the pairs with a representative at one end at least.
    - N-pair, angular: representatives are the positives, the other images of their classes the anchors.
    - any other loss sees the whole batch: it gets PROFS's batches and proximal term, and nothing is restricted.

    Shapes: embeddings (N, d), labels (N,), representative (N,) bool.
    """
    ends = representative.nonzero()[:, 0]
    if isinstance(loss, ContrastiveLoss | MarginLoss | TripletLoss):
        normalize = loss.normalize
        return {"triplets": mine(embeddings, labels, "balanced-hard", anchors=ends, normalize=normalize)}
    if isinstance(loss, LiftedStructureLoss):
        everyone = torch.arange(len(labels), device=labels.device)
        pairs = torch.cartesian_prod(ends, everyone)
        i, j = pairs[pairs[:, 0] != pairs[:, 1]].T
        return {"pairs": (i, j)}
    if isinstance(loss, NPairLoss | AngularLoss):
        pairs = ((labels[:, None] == labels[None, ends]) & ~representative[:, None]).nonzero()
        return {"pairs": (pairs[:, 0], ends[pairs[:, 1]])}
    return {}
