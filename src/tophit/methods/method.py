"""The interface of methods: how a training step is made from a batch, a loss and optimizers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import nn

from tophit.batches import BatchSampler

if TYPE_CHECKING:
    from tophit.methods.plain import BatchMemory
    from tophit.methods.stepper import Stepper

Embed = Callable[[torch.Tensor], torch.Tensor]
Miner = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]


@dataclass
class TrainingBatch:
    """One batch: inputs (N, ...) to embed, class numbers (N,), and the rows (N,) of the training set they come from.

    Labels may also be several for each image (N, K), padded with -1, or paths (N, L) for a loss that takes them.

    With many processes, labels and rows are those of all processes, inputs only this process's part; ``parts`` are the
    lengths of the parts.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    rows: torch.Tensor
    parts: list[int] | None = None


@dataclass(frozen=True)
class RunParts:
    """What a run gives to a method.

    ``embed`` maps inputs to what the loss takes: unit vectors, or the head's raw output for a loss that does not
    normalise; ``embed_unit`` always returns unit vectors. ``features`` maps inputs to pooled features (N,
    ``channels``), and ``head`` those to unit vectors: one after the other they are ``embed_unit``. ``make_optimizer``
    takes a module that holds the parameters of all losses. ``make_loss`` makes another loss from its name.
    """

    embed: Embed
    embed_unit: Embed
    features: Embed
    head: Embed
    loss: nn.Module
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    make_loss: Callable[[str], nn.Module]
    sampler: BatchSampler
    miner: Miner | None
    memory: "BatchMemory | None"
    classes: int
    dim: int
    channels: int
    device: torch.device
    stepper: "Stepper"


def tuples_used(loss: nn.Module, chosen: Sequence[torch.Tensor] = ()) -> int | None:
    """Return how many pairs or triplets the last call of a loss compared; None if it is not known.

    A loss of another library does not say; then those that a miner chose count: (a, p, n) or (a, p, a, n).
    """
    used = getattr(loss, "used", None)
    if used is None and len(chosen):
        used = len(chosen[0]) + (len(chosen[2]) if len(chosen) == 4 else 0)
    return used


def logged_tuples(*counts: int | None) -> dict[str, float]:
    """Return the sum of counts to log as ``tuples``; nothing if none is known."""
    known = [count for count in counts if count is not None]
    return {"tuples": float(sum(known))} if known else {}


class Method(ABC):
    """How a training step is made from a batch, a loss and optimizers. Its class declares what it works with."""

    takes_miner: ClassVar[bool] = True
    """It accepts a miner."""
    takes_memory: ClassVar[bool] = False
    """It accepts a memory: a batch may also be compared with earlier ones."""
    needs_triplets: ClassVar[bool] = False
    """It gives chosen triplets to its loss."""

    takes_sets: ClassVar[bool] = False
    """It gives its loss the labels of a batch as they are, so that they may be several for each image, or paths."""

    loss: nn.Module

    @classmethod
    @abstractmethod
    def for_run(cls, parts: RunParts, **options: Any) -> Self:
        """Make the method of a run from the run's parts and the options of the recipe's section."""

    @classmethod
    def make_sampler(
        cls, labels: Sequence[Hashable], classes: int, per_class: int, seed: int, **options: Any
    ) -> BatchSampler | None:
        """Return this method's own sampler, or None if any sampler works."""
        return None

    @property
    @abstractmethod
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers whose learning rates the schedule moves."""

    def begin_epoch(self, epoch: int) -> None:  # noqa: B027  (most methods have nothing to do)
        """Set the epoch (from 0) of the next steps; a resumed run calls it again in the middle of an epoch."""

    @abstractmethod
    def step(self, batch: TrainingBatch) -> Mapping[str, float | str]:
        """Learn from one batch and return what to log: ``loss``, and a ``warning`` if the user should see one.

        ``tuples`` is the number of pairs or triplets that the step used; the log has their sum since the run began.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return all that is needed to continue exactly, except the embedder's weights, which are saved separately."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
