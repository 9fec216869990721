"""The plain method: embed the batch, one loss, one step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tophit.methods.base import TrainingBatch
from tophit.methods.memory import BatchMemory
from tophit.methods.stepper import Stepper


class PlainMethod:
    """Embeds a batch, computes a loss of embeddings and labels, and takes one optimizer step.

    ``embed`` maps a batch's inputs to embeddings (N, d): the embedder itself, or its head where features are cached.
    ``miner`` maps embeddings and labels to index tensors, triplets or pairs, that restrict the loss.
    ``memory`` adds the loss of the batch against the embeddings of batches before it, for losses that take ``ref_emb``.
    ``stepper`` computes: many processes, chunks, mixed precision; without one it is plain PyTorch.
    """

    def __init__(
        self,
        embed: Callable[[torch.Tensor], torch.Tensor],
        loss: nn.Module,
        optimizer: torch.optim.Optimizer,
        miner: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]] | None = None,
        memory: BatchMemory | None = None,
        stepper: Stepper | None = None,
    ) -> None:
        self.embed = embed
        self.loss = loss
        self.optimizer = optimizer
        self.miner = miner
        self.memory = memory
        self.stepper = stepper or Stepper()

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The one optimizer."""
        return [self.optimizer]

    def begin_epoch(self, epoch: int) -> None:
        """Do nothing: every epoch is the same."""

    def step(self, batch: TrainingBatch) -> dict[str, float]:
        """Learn from one batch and return what is worth logging."""
        self.optimizer.zero_grad(set_to_none=True)
        embeddings = self.stepper.embed(self.embed, batch)
        if self.miner is None:
            loss = self.loss(embeddings, batch.labels)
        else:
            loss = self.loss(embeddings, batch.labels, self.miner(embeddings.detach(), batch.labels))
        if self.memory is not None:
            loss = loss + self.memory.loss(self.loss, embeddings, batch.labels)
        self.stepper.backward(loss, self.optimizer)
        self.stepper.step(self.optimizer)
        return {"loss": loss.item()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loss and the optimizer; the embedder's is saved apart."""
        state = {"loss": self.loss.state_dict(), "optimizer": self.optimizer.state_dict()}
        return state if self.memory is None else {**state, "memory": self.memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self.loss.load_state_dict(state["loss"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.memory is not None:
            self.memory.load_state_dict(state["memory"], self.optimizer.param_groups[0]["params"][0].device)
