"""Several labels for each image: their numbers (N, K), padded with -1 where an image has fewer."""

import torch

NO_LABEL = -1


def are_sets(labels: torch.Tensor) -> bool:
    """Return whether labels are sets (N, K) of integers, not one integer each (N,) or a matrix of pairs."""
    return labels.ndim == 2 and not labels.is_floating_point() and labels.dtype != torch.bool


def share_a_label(labels: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return which pairs (N, M) of sets of labels (N, K) and (M, J) have one in common.

    >>> share_a_label(torch.tensor([[0, 2], [1, -1]]), torch.tensor([[2, -1], [0, 1]])).tolist()
    [[True, True], [False, True]]
    """
    count = 1 + max(int(each.max()) if each.numel() else NO_LABEL for each in (labels, others))
    return (_has(labels, count) @ _has(others, count).T) > 0


def _has(labels: torch.Tensor, count: int) -> torch.Tensor:
    """Return which image has which label, as numbers 0 and 1 (N, count)."""
    table = torch.zeros(len(labels), count + 1, device=labels.device)
    table.scatter_(1, torch.where(labels < 0, count, labels), 1.0)
    return table[:, :count]


def memberships(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the classes (P,) and the images (P,) of all memberships: one for each image, or for each of its labels.

    >>> memberships(torch.tensor([[0, 2], [1, -1]]))
    (tensor([0, 2, 1]), tensor([0, 0, 1]))
    """
    if not are_sets(labels):
        return labels, torch.arange(len(labels), device=labels.device)
    images, places = (labels >= 0).nonzero(as_tuple=True)
    return labels[images, places], images
