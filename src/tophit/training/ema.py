"""A moving average of the weights, which often retrieves better than the weights themselves."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class WeightAverage:
    """Keeps ``decay`` of the average and takes the rest from the weights at each ``update``.

    Buffers, such as BatchNorm's statistics, are not averaged: those of the network are used.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self._weights: list[torch.Tensor] = list(module.parameters())
        self.average = [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the weights as they are now."""
        torch._foreach_lerp_(self.average, self._weights, 1 - self.decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Put the average into the module, for evaluating and saving, and afterwards the weights again."""
        weights = [weight.detach().clone() for weight in self._weights]
        self._fill(self.average)
        try:
            yield
        finally:
            self._fill(weights)

    def state_dict(self) -> list[torch.Tensor]:
        """Return the average."""
        return self.average

    def load_state_dict(self, state: list[torch.Tensor]) -> None:
        """Restore what ``state_dict`` returned."""
        self.average = [kept.to(weight.device) for kept, weight in zip(state, self._weights, strict=True)]

    @torch.no_grad()
    def _fill(self, values: list[torch.Tensor]) -> None:
        torch._foreach_copy_(self._weights, values)  # pyright: ignore[reportPrivateImportUsage]
