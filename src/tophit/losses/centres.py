"""How many centres a class really has: proxies that the regulariser has merged count as one."""

import torch
from torch.nn import functional

# Unit vectors closer than this are one centre: their cosine is above 0.995, an angle of 5.7 degrees.
MERGE_DISTANCE = 0.1


@torch.no_grad()
def merged_centres(proxies: torch.Tensor, distance: float = MERGE_DISTANCE) -> torch.Tensor:
    """Return for each proxy (C, K) the first proxy of its class that is the same centre; proxies are (C, K, d).

    Two proxies are one centre if they are closer than ``distance`` on the unit sphere, or joined by a chain of such.
    """
    w = functional.normalize(proxies.double(), dim=2)
    near = (2 - 2 * torch.bmm(w, w.transpose(1, 2))).clamp(min=0) < distance**2
    near |= torch.eye(proxies.shape[1], dtype=torch.bool, device=near.device)
    for _ in range(proxies.shape[1].bit_length()):  # each round doubles the length of the chains
        near = torch.bmm(near.double(), near.double()) > 0
    return near.int().argmax(dim=2)


def distinct_centres(proxies: torch.Tensor, distance: float = MERGE_DISTANCE) -> torch.Tensor:
    """Return how many distinct centres each class (C,) has among its proxies (C, K, d) or (C, d).

    >>> distinct_centres(torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.01, 1.0]]])).tolist()
    [2]
    """
    if proxies.ndim == 2:
        proxies = proxies[:, None]
    centres = merged_centres(proxies, distance)
    return (centres == torch.arange(proxies.shape[1], device=centres.device)).sum(dim=1)
