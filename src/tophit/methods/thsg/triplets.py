"""The triplets that generation starts from: one a sample, drawn at random."""

import torch


@torch.no_grad()
def random_triplets(labels: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Return triplets (3, T) of row numbers: each anchor with a random positive and a random negative.

    ``labels`` (N,). Anchors without a positive or a negative are left out. Drawn on the CPU, from ``generator`` or
    torch's seed, so that a seed gives the same triplets on every device.
    """
    same = labels[:, None] == labels[None, :]
    positive = same.clone().fill_diagonal_(False)
    draws = torch.rand(same.shape, generator=generator).to(labels.device)
    # The largest of independent uniform draws is equally likely to be any of them.
    p = draws.masked_fill(~positive, -1).argmax(dim=1)
    n = draws.masked_fill(same, -1).argmax(dim=1)
    anchors = (positive.any(dim=1) & ~same.all(dim=1)).nonzero()[:, 0]
    return torch.stack([anchors, p[anchors], n[anchors]])
