"""What DAML and HDML share: a generator in the space of features, and an embedder that learns from what it makes.

Both work one layer before the embedding: y are pooled features (N, channels), and the metric is the head, z = f(y),
unit vectors. What a generator makes are features too, so they pass through the head as real ones do.
"""

from abc import abstractmethod
from itertools import pairwise
from typing import Any, Self

import torch
from torch import nn

from tophit.errors import UsageError
from tophit.methods.method import Embed, Method, RunParts, TrainingBatch, logged_tuples, tuples_used
from tophit.methods.part_optimizers import PartOptimizers
from tophit.methods.stepper import Stepper
from tophit.methods.thsg.components import loss_of_triplets, random_triplets


class FeatureGenerator(nn.Module):
    """Linear layers with ReLU between them, to a vector as long as a feature."""

    def __init__(self, inputs: int, widths: tuple[int, ...], channels: int) -> None:
        super().__init__()
        sizes = [inputs, *widths, channels]
        layers: list[nn.Module] = []
        for size, following in pairwise(sizes):
            layers += [nn.Linear(size, following), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (..., inputs) to features (..., channels)."""
        return self.layers(x)


class FeatureGenerationMethod(Method):
    """Makes a step from random triplets of features; a subclass's step is in ``learn``.

    ``features`` maps a batch's inputs to features (N, C), ``head`` features to unit vectors (N, d). ``optimizer`` holds
    the parameters of both and of the loss; each of ``networks`` gets an Adam of its own. Everything is computed in
    float32, regardless of autocast, in one process.
    """

    takes_miner = False
    needs_triplets = True

    def __init__(
        self,
        name: str,
        features: Embed,
        head: Embed,
        loss: nn.Module,
        optimizer: torch.optim.Optimizer,
        networks: nn.ModuleDict,
        rates: dict[str, float],
        meanings: dict[str, str],
        weight_decay: float,
        pretrain_epochs: int,
        device: torch.device | str = "cpu",
        stepper: Stepper | None = None,
    ) -> None:
        self.features, self.head, self.loss = features, head, loss
        self.stepper = stepper or Stepper()
        if self.stepper.world > 1:
            raise UsageError(f"method.name: {name} runs in one process; leave out torchrun, or use generation.")
        self.networks = networks.to(device)
        self._optimizers = PartOptimizers(name, self.stepper, {"f": "the loss of the embedder", **meanings})
        self._optimizers["f"] = optimizer
        embedder_rate = optimizer.param_groups[0]["lr"]  # the first group is the embedder's
        for part, network in networks.items():
            self._optimizers.add_adam(part, network.parameters(), rates[part] * embedder_rate, weight_decay)
        self.pretrain_epochs = pretrain_epochs
        self.epoch = 0
        self._used: list[int | None] = []  # pairs or triplets of this step's losses

    @classmethod
    def for_run(cls, parts: RunParts, **options: Any) -> Self:
        """Make the method of a run."""
        made: Any = cls
        return made(
            parts.features,
            parts.head,
            parts.loss,
            parts.make_optimizer(parts.loss),
            classes=parts.classes,
            dim=parts.dim,
            channels=parts.channels,
            device=parts.device,
            stepper=parts.stepper,
            **options,
        )

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The embedder's, and one for each network."""
        return list(self._optimizers.values())

    def begin_epoch(self, epoch: int) -> None:
        """Set the epoch (from 0) of the next steps."""
        self.epoch = epoch

    def step(self, batch: TrainingBatch) -> dict[str, float | str]:
        """Learn from one batch and return what to log."""
        y = self.stepper.embed(self.features, batch)
        with torch.autocast(y.device.type, enabled=False):
            y = y.float()
            triplets = random_triplets(batch.labels)
            if not triplets.shape[1]:
                return {"loss": 0.0, "triplets": 0.0}
            self._used.clear()
            return {**self.learn(y, self.head(y), batch.labels, triplets), **logged_tuples(*self._used)}

    def metric_loss(self, z: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor) -> torch.Tensor:
        """Return the loss of triplets (3, T) of embeddings z (N, d) with labels (N,), and count them."""
        loss = loss_of_triplets(self.loss, z, labels, triplets)
        self._used.append(tuples_used(self.loss, tuple(triplets)))
        return loss

    @abstractmethod
    def learn(
        self, y: torch.Tensor, z: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor
    ) -> dict[str, float | str]:
        """Learn from features y (N, C), embeddings z (N, d), labels (N,) and triplets (3, T); return what to log."""

    def state_dict(self) -> dict[str, Any]:
        """Return all state except the embedder's weights."""
        return {
            "loss": self.loss.state_dict(),
            "networks": self.networks.state_dict(),
            "optimizers": self._optimizers.state_dict(),
            "epoch": self.epoch,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.loss.load_state_dict(state["loss"])
        self.networks.load_state_dict(state["networks"])
        self._optimizers.load_state_dict(state["optimizers"])
        self.epoch = state["epoch"]


def squared_norm(x: torch.Tensor) -> torch.Tensor:
    """Return the squared lengths (...) of vectors (..., d)."""
    return x.square().sum(dim=-1)
