"""The plain method: embed the batch, one loss, one step; and the memory of past batches it may compare with."""

from typing import Any, Self

import torch
from torch import nn

from tophit.methods.method import Embed, Method, Miner, RunParts, TrainingBatch, logged_tuples, tuples_used
from tophit.methods.stepper import Stepper
from tophit.registry import register


class BatchMemory:
    """A ring of past embeddings (Wang et al., "Cross-Batch Memory for Embedding Learning", CVPR 2020).

    Embeddings drift slowly once training is under way, so those of recent batches are close to what the embedder would
    return now: with ``size`` of them a batch of 64 sees thousands of negatives. ``start`` is the number of steps before
    they are used, ``weight`` the weight of the memory's term. A batch is compared only with the batches before it.
    """

    def __init__(self, size: int, start: int = 0, weight: float = 1.0) -> None:
        self.size, self.start, self.weight = size, start, weight
        self.steps = 0
        self.embeddings: torch.Tensor | None = None  # (M, d), the oldest first
        self.labels: torch.Tensor | None = None

    @property
    def compares(self) -> bool:
        """Whether the next batch will be compared with earlier ones."""
        return self.steps >= self.start and self.embeddings is not None

    def loss(self, loss: nn.Module, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the weighted loss of a batch against the memory, then remember the batch; 0 before ``start``."""
        value = embeddings.new_zeros(())
        if self.compares:
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


@register("method", "plain")
class PlainMethod(Method):
    """One batch, one loss, one step.

    ``embed`` maps a batch's inputs to embeddings (N, d): the embedder itself, or its head where features are cached.
    ``miner`` maps embeddings and labels to index tensors, triplets or pairs, that restrict the loss.
    ``memory`` adds the loss of the batch against the embeddings of earlier batches, for losses that take ``ref_emb``.
    ``stepper`` handles many processes, chunks and mixed precision; without one it is plain PyTorch.
    """

    takes_memory = True
    takes_sets = True

    def __init__(
        self,
        embed: Embed,
        loss: nn.Module,
        optimizer: torch.optim.Optimizer,
        miner: Miner | None = None,
        memory: BatchMemory | None = None,
        stepper: Stepper | None = None,
    ) -> None:
        self.embed = embed
        self.loss = loss
        self.optimizer = optimizer
        self.miner = miner
        self.memory = memory
        self.stepper = stepper or Stepper()

    @classmethod
    def for_run(cls, parts: RunParts, **options: Any) -> Self:
        """Make the method of a run; it has no options."""
        optimizer = parts.make_optimizer(parts.loss)
        return cls(parts.embed, parts.loss, optimizer, parts.miner, parts.memory, parts.stepper)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The one optimizer."""
        return [self.optimizer]

    def step(self, batch: TrainingBatch) -> dict[str, float]:
        """Learn from one batch and return what to log."""
        self.optimizer.zero_grad(set_to_none=True)
        embeddings = self.stepper.embed(self.embed, batch)
        chosen = () if self.miner is None else self.miner(embeddings.detach(), batch.labels)
        loss = self.loss(embeddings, batch.labels, *([chosen] if self.miner else []))
        used = [tuples_used(self.loss, chosen)]
        if self.memory is not None:
            compares = self.memory.compares
            loss = loss + self.memory.loss(self.loss, embeddings, batch.labels)
            used += [tuples_used(self.loss)] if compares else []
        self.stepper.backward(loss, self.optimizer)
        self.stepper.step(self.optimizer)
        return {"loss": loss.item(), **logged_tuples(*used)}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loss and the optimizer; the embedder's is saved separately."""
        state = {"loss": self.loss.state_dict(), "optimizer": self.optimizer.state_dict()}
        return state if self.memory is None else {**state, "memory": self.memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.loss.load_state_dict(state["loss"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.memory is not None:
            self.memory.load_state_dict(state["memory"], self.optimizer.param_groups[0]["params"][0].device)
