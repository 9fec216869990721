"""The parts of THSG besides its equations: networks, random triplets, threshold, buffer, and the collapse check.

DAML and HDML use some of them too.
"""

from collections import deque
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tophit.losses.pairwise.pair_loss import PairLoss

# A class counts as collapsed if its generated samples spread less than this share of its real ones' spread.
COLLAPSED = 0.1


class Generator(nn.Module):
    """Two linear layers from a vector (..., d) to a unit vector of the same length."""

    def __init__(self, dim: int, width: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map vectors (..., d) to unit vectors (..., d)."""
        return functional.normalize(self.layers(x), dim=-1)


def discriminator(dim: int, classes: int, width: int = 512) -> nn.Module:
    """Return two linear layers from vectors (..., dim) to logits (..., classes)."""
    return nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, classes))


class GenerationNetworks(nn.Module):
    """All networks of THSG except the embedder, for C classes and embeddings of length d.

    ``classifier`` (d to C) is shared: it is learned with the embedder and judges the generated samples. ``g1``
    and ``g2`` are d to d. ``d1`` takes a sample joined with its stretched form: 2 d to (generated, real).
    ``d2`` is d to C + 1.
    """

    def __init__(self, classes: int, dim: int, generator_width: int = 128, discriminator_width: int = 512) -> None:
        super().__init__()
        self.classifier = nn.Linear(dim, classes)
        self.g1 = Generator(dim, generator_width)
        self.d1 = discriminator(2 * dim, 2, discriminator_width)
        self.g2 = Generator(dim, generator_width)
        self.d2 = discriminator(dim, classes + 1, discriminator_width)


@torch.no_grad()
def random_triplets(labels: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Return triplets (3, T) of row numbers: each anchor with a random positive and a random negative.

    ``labels`` (N,). Anchors without a positive or a negative are left out. Drawn on the CPU, from ``generator`` or
    torch's default one, so that a seed gives the same triplets on every device.
    """
    same = labels[:, None] == labels[None, :]
    positive = same.clone().fill_diagonal_(False)
    draws = torch.rand(same.shape, generator=generator).to(labels.device)
    # The largest of independent uniform draws is equally likely to be any of them.
    p = draws.masked_fill(~positive, -1).argmax(dim=1)
    n = draws.masked_fill(same, -1).argmax(dim=1)
    anchors = (positive.any(dim=1) & ~same.all(dim=1)).nonzero()[:, 0]
    return torch.stack([anchors, p[anchors], n[anchors]])


def loss_of_triplets(loss: nn.Module, x: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor) -> torch.Tensor:
    """Return the loss of triplets (3, T) of unit vectors x (N, d), by ``of_triplets`` or else ``indices_tuple``."""
    if isinstance(loss, PairLoss):
        return loss.of_triplets(x, labels, triplets)
    return loss(x, labels, tuple(triplets))


def plain_numbers(values: dict[str, Any]) -> dict[str, float | str]:
    """Return plain numbers, fetched from the device in one transfer."""
    tensors = {name: value.detach().double() for name, value in values.items() if isinstance(value, torch.Tensor)}
    fetched = torch.stack(list(tensors.values())).tolist()
    return {**values, **dict(zip(tensors, fetched, strict=True))}


class EpochMean:
    """Eq. 11: the mean of the previous epoch; in the first epoch, the mean so far."""

    def __init__(self) -> None:
        self.previous: float | None = None
        self.total = 0.0
        self.count = 0

    def add(self, distances: torch.Tensor) -> None:
        """Add the distances (T,) of a step's pairs."""
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
        """Return what is needed to continue."""
        return vars(self).copy()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.previous, self.total, self.count = state["previous"], state["total"], state["count"]


class SampleBuffer:
    """Keeps the generated samples of the last ``steps`` steps, with their labels; 0 keeps none.

    The paper mentions reusing good samples as future work. They carry no gradient; they serve as negatives.
    """

    def __init__(self, steps: int) -> None:
        self._kept: deque[tuple[torch.Tensor, torch.Tensor]] = deque(maxlen=steps)

    def add(self, samples: torch.Tensor, labels: torch.Tensor) -> None:
        """Keep a step's samples (M, d) with labels (M,), and drop the oldest step's if there are too many steps."""
        self._kept.append((samples.detach(), labels))

    @torch.no_grad()
    def nearest_others(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the kept sample (R, d) of another class nearest to each x (T, d), its label, and its row of x."""
        if not sum(len(samples) for samples, _ in self._kept):  # none generated, or none still classified correctly
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


@torch.no_grad()
def class_spread_ratio(
    real: torch.Tensor, real_labels: torch.Tensor, made: torch.Tensor, made_labels: torch.Tensor, classes: int
) -> torch.Tensor:
    """Return the spread of generated samples (M, d) over that of real ones (N, d), per class with at least two of both.

    The spread of a class is the mean squared distance to its mean. Classes whose real samples coincide are left out.
    """
    spread, count = _class_spread(real, real_labels, classes)
    made_spread, made_count = _class_spread(made, made_labels, classes)
    usable = (count >= 2) & (made_count >= 2) & (spread > torch.finfo(spread.dtype).eps)
    return made_spread[usable] / spread[usable]


def _class_spread(x: torch.Tensor, labels: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the spread and the number of samples of each class, both (classes,)."""
    count = torch.bincount(labels, minlength=classes)
    at_least_one = count.clamp(min=1)[:, None]
    mean = x.new_zeros(classes, x.shape[1]).index_add_(0, labels, x) / at_least_one
    squared = (x - mean[labels]).square().sum(dim=1)
    return x.new_zeros(classes).index_add_(0, labels, squared) / at_least_one[:, 0], count


class CollapseWatch:
    """Warns once when, over some steps, most classes of a batch have collapsed."""

    def __init__(self, steps: int = 20, share: float = 0.5) -> None:
        self.steps = steps
        self.share = share
        self.recent: list[float] = []
        self.warned = False

    def see(self, collapsed: float) -> str | None:
        """Add a step's share of collapsed classes; return a warning the first time there is reason for one."""
        self.recent = [*self.recent, collapsed][-self.steps :]
        mean = sum(self.recent) / len(self.recent)
        if self.warned or len(self.recent) < self.steps or mean < self.share:
            return None
        self.warned = True
        return (
            f"Generation has collapsed: over the last {self.steps} steps, in {100 * mean:.0f}% of the classes the "
            f"generated samples spread less than {100 * COLLAPSED:.0f}% as far as the real ones, so they teach little. "
            "Lower method.generator_rate, raise method.discriminator_rate, or train with method.name=plain."
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to continue."""
        return {"recent": self.recent, "warned": self.warned}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.recent, self.warned = list(state["recent"]), bool(state["warned"])
