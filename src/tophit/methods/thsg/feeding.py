"""Feed triplets, original or generated, to a loss: the paper's triplet loss, or another that takes tuples."""

import torch
from torch import nn

from tophit.losses import AngularLoss, NPairLoss, TripletLoss
from tophit.methods.thsg.equations import triplet


def triplet_loss(loss: nn.Module, x: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor) -> torch.Tensor:
    """Return the loss of triplets (3, T) of rows of unit vectors x (N, d) with labels (N,).

    A triplet loss takes Eqs. 6 and 7 as they are. N-pair and angular loss compare each pair with the negatives of all
    triplets that are of another class. Other losses get the triplets as their ``indices_tuple``.
    """
    if type(loss) is TripletLoss:
        return triplet(x[triplets], loss.margin).mean()
    if isinstance(loss, NPairLoss | AngularLoss):
        return loss(x, labels, many_negatives(labels, triplets))
    return loss(x, labels, tuple(triplets))


def many_negatives(labels: torch.Tensor, triplets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the pairs of triplets (3, T), and each anchor with the negatives of all: (a, p, anchors, negatives)."""
    a, p, n = triplets
    n = n.unique()
    rows, columns = (labels[a][:, None] != labels[n][None, :]).nonzero(as_tuple=True)
    return a, p, a[rows], n[columns]
