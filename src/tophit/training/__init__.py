"""Training: from a recipe to a run."""

from tophit.training.loop import resume, train
from tophit.training.run import Run

__all__ = ["Run", "resume", "train"]
