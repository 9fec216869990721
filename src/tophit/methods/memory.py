"""Cross-batch memory: a batch is also compared with the embeddings of the batches before it."""

from typing import Any

import torch
from torch import nn


class BatchMemory:
    """A ring of past embeddings (Wang et al., "Cross-Batch Memory for Embedding Learning", CVPR 2020).

    Embeddings drift slowly once training is under way, so those of the last batches are nearly what the embedder would
    say now: with ``size`` of them a batch of 64 sees thousands of negatives. ``start`` is the number of steps before
    they are used, ``weight`` that of the memory's term. Only past batches are in it when a batch is compared with it.
    """

    def __init__(self, size: int, start: int = 0, weight: float = 1.0) -> None:
        self.size, self.start, self.weight = size, start, weight
        self.steps = 0
        self.embeddings: torch.Tensor | None = None  # (M, d), the oldest first
        self.labels: torch.Tensor | None = None

    def loss(self, loss: nn.Module, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the weighted loss of a batch against the memory, then remember the batch; 0 before ``start``."""
        value = embeddings.new_zeros(())
        if self.steps >= self.start and self.embeddings is not None:
            value = self.weight * loss(embeddings, labels, ref_emb=self.embeddings, ref_labels=self.labels)
        self._remember(embeddings.detach(), labels)
        self.steps += 1
        return value

    def _remember(self, embeddings: torch.Tensor, labels: torch.Tensor) -> None:
        if self.embeddings is not None and self.labels is not None:
            embeddings, labels = torch.cat([self.embeddings, embeddings]), torch.cat([self.labels, labels])
        self.embeddings, self.labels = embeddings[-self.size :], labels[-self.size :]

    def state_dict(self) -> dict[str, Any]:
        """Return the memory and how many steps it has seen."""
        return {"steps": self.steps, "embeddings": self.embeddings, "labels": self.labels}

    def load_state_dict(self, state: dict[str, Any], device: torch.device | str = "cpu") -> None:
        """Restore what ``state_dict`` returned, onto a device."""
        self.steps = state["steps"]
        self.embeddings, self.labels = (
            None if state[name] is None else state[name].to(device) for name in ("embeddings", "labels")
        )
