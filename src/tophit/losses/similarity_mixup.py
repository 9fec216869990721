"""SiMix: virtual images between two images of a class, made of their similarities alone."""

import torch

from tophit.losses.ranking_loss import Candidates


def with_virtual_images(given: Candidates) -> Candidates:
    """Add a virtual image for every pair of positives in a batch (Patel et al., CVPR 2022, similarity mixup).

    The embedding of the virtual image is a x_i + (1 - a) x_j with a random a between 0 and 1, not normalised, so its
    similarities are mixtures of those of i and j and cost no pass of the network. It is a query and a candidate, and
    positive to whatever i and j are both positive to, themselves included. Shapes: Q = N images become N + the number
    of positive pairs. A batch that is compared with a memory stays as it is.
    """
    x, candidates, positive, negative = given
    if candidates is not x:
        return given
    i, j = positive.triu(diagonal=1).nonzero(as_tuple=True)
    share = torch.rand(len(i), 1, dtype=x.dtype, device=x.device)
    mixed = torch.cat([x, share * x[i] + (1 - share) * x[j]])
    own = torch.eye(len(x), dtype=torch.bool, device=x.device)
    return Candidates(mixed, mixed, _extended(positive | own, i, j).fill_diagonal_(False), _extended(negative, i, j))


def _extended(mask: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
    """Return a mask (N, N) with rows and columns for pairs (V,): where it holds for both images of the pair."""
    rows = torch.cat([mask, mask[i] & mask[j]])
    return torch.cat([rows, rows[:, i] & rows[:, j]], dim=1)
