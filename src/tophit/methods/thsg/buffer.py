"""A buffer of generated samples, so that good ones are used for more than one step."""

from collections import deque
from typing import Any

import torch


class SampleBuffer:
    """Keeps the generated samples of the last ``steps`` steps, with their labels; 0 keeps none.

    The paper names the reuse of good samples as future work. They carry no gradient: they serve as negatives.
    """

    def __init__(self, steps: int) -> None:
        self._kept: deque[tuple[torch.Tensor, torch.Tensor]] = deque(maxlen=steps)

    def add(self, samples: torch.Tensor, labels: torch.Tensor) -> None:
        """Keep a step's samples (M, d) with labels (M,), and drop those of the oldest step if there are too many."""
        self._kept.append((samples.detach(), labels))

    @torch.no_grad()
    def nearest_others(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the kept sample (R, d) of another class nearest to each x (T, d), its label, and its row of x."""
        if not self._kept:
            return x[:0], labels[:0], labels[:0]
        samples, kinds = (torch.cat(parts) for parts in zip(*self._kept, strict=True))
        distances = torch.cdist(x, samples).masked_fill(labels[:, None] == kinds[None, :], torch.inf)
        least, nearest = distances.min(dim=1)
        rows = least.isfinite().nonzero()[:, 0]
        return samples[nearest[rows]], kinds[nearest[rows]], rows

    def state_dict(self) -> dict[str, Any]:
        """Return the kept samples."""
        return {"samples": [s for s, _ in self._kept], "labels": [y for _, y in self._kept]}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore what ``state_dict`` returned."""
        self._kept.clear()
        for samples, labels in zip(state["samples"], state["labels"], strict=True):
            self._kept.append((samples.to(device), labels.to(device)))
