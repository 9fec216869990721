"""What the training loop needs of a method."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn


@dataclass
class TrainingBatch:
    """One batch: inputs (N, ...) to embed, class numbers (N,), and the rows (N,) of the training set they come from.

    With many processes labels and rows are those of all of them, inputs this process's own part; ``parts`` are the
    lengths of the parts.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    rows: torch.Tensor
    parts: list[int] | None = None


class Method(Protocol):
    """How a training step is made from a batch, a loss and optimizers."""

    loss: nn.Module

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers whose learning rates the schedule moves."""
        ...

    def begin_epoch(self, epoch: int) -> None:
        """Say which epoch (from 0) the next steps belong to; a resumed run says it again in the middle of one."""
        ...

    def step(self, batch: TrainingBatch) -> Mapping[str, float | str]:
        """Learn from one batch and return what to log: ``loss``, and a ``warning`` if the user should be told."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to continue exactly, but the embedder's weights, which are saved apart."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        ...
