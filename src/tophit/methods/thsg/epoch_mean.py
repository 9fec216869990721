"""The adaptive threshold of Eq. 11: the mean distance of the anchor-positive pairs of the previous epoch."""

from typing import Any

import torch


class EpochMean:
    """Eq. 11: the mean of the previous epoch; in the first epoch, which has none before it, the mean so far."""

    def __init__(self) -> None:
        self.previous: float | None = None
        self.total = 0.0
        self.count = 0

    def add(self, distances: torch.Tensor) -> None:
        """Take in the distances (T,) of a step's pairs."""
        self.total += float(distances.detach().sum(dtype=torch.float64))
        self.count += len(distances)

    def end_epoch(self) -> None:
        """Make this epoch the previous one; an epoch without pairs changes nothing."""
        if self.count:
            self.previous = self.total / self.count
        self.total, self.count = 0.0, 0

    def value(self) -> float:
        """Return the threshold."""
        return self.total / max(1, self.count) if self.previous is None else self.previous

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to go on."""
        return vars(self).copy()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.previous, self.total, self.count = state["previous"], state["total"], state["count"]
