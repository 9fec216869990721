"""The state of a run in progress: everything that is needed to continue it exactly, saved and restored."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from tophit.batches import BatchSampler, ConfusedBatchSampler
from tophit.errors import TophitError
from tophit.methods import Method, Stepper
from tophit.models.embedder import Embedder
from tophit.recipe import Recipe
from tophit.training.learning import Learning
from tophit.training.optimizer import WeightAverage
from tophit.training.run import Run
from tophit.training.run_rows import RunRows


@dataclass
class Position:
    """How far a run has got."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch already learned from
    best_value: float = -math.inf
    best_epoch: int = 0
    worse: int = 0  # evaluations since the best one
    seconds: float = 0.0
    tuples: float = 0.0  # pairs or triplets used so far
    bad: dict[int, str] = field(default_factory=dict)
    trained_apart: bool = False  # the best epoch is in the run's folder "trained", and "best" may be something else


@dataclass(frozen=True)
class Snapshots:
    """Saves a run's parts into its checkpoints, and restores them from the last one."""

    run: Run
    recipe: Recipe
    rows: RunRows
    embedder: Embedder
    learning: Learning
    method: Method
    stepper: Stepper
    average: WeightAverage | None
    sampler: BatchSampler

    def save(self, position: Position, log_bytes: int) -> None:
        """Write a checkpoint; ``log_bytes`` of the log belong to it."""
        learned = self.learning.state()
        if not all(bool(value.isfinite().all()) for value in learned.values()):
            raise TophitError(
                f"The weights became infinite or NaN at step {position.step}: training diverged; lower the "
                f"learning rates. {self.run.last_checkpoint()}"
            )
        device = self.embedder.device
        state = {
            "data": self.rows.digest,
            "position": vars(position),
            "embedder": learned,
            "method": self.method.state_dict(),
            "engine": self.stepper.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "sampler": self.sampler.state_dict() if isinstance(self.sampler, ConfusedBatchSampler) else None,
            "random": torch.get_rng_state(),
            "random_device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
            "log_bytes": log_bytes,
        }
        self.run.save_checkpoint(state, self.recipe.checkpoint.keep)

    def restore(self, note: Callable[[str], None]) -> tuple[Position, int]:
        """Load the last checkpoint, if there is one; return the position and how much of the log belongs to it."""
        state = self.run.load_checkpoint(note)
        if state is None:
            return Position(), 0
        if state["data"] != self.rows.digest:
            raise TophitError(
                f"The images or labels of {self.rows.whole.source} have changed since the run in {self.run.folder} "
                "began, so it can't be continued; restore them, or start a new run."
            )
        fit = self.embedder.load_state_dict(state["embedder"], strict=False)  # a frozen backbone is not in it
        missing = [name for name in fit.missing_keys if name in self.learning.state()]  # of what learns
        if fit.unexpected_keys or missing:
            raise TophitError(
                f"The checkpoint in {self.run.folder} is of another network than {self.recipe.embedder.backbone}: "
                f"{(fit.unexpected_keys or missing)[0]} does not belong to both."
            )
        self.method.load_state_dict(state["method"])
        self.stepper.load_state_dict(state["engine"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        if isinstance(self.sampler, ConfusedBatchSampler):
            self.sampler.load_state_dict(state["sampler"])
        torch.set_rng_state(state["random"])
        if state["random_device"] is not None and self.embedder.device.type == "cuda":
            torch.cuda.set_rng_state(state["random_device"], self.embedder.device)
        return Position(**state["position"]), state["log_bytes"]
