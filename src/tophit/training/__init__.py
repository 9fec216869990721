"""Training: from a recipe to a run."""

from tophit.training.loop import resume, train
from tophit.training.result import TrainingResult
from tophit.training.run import Run

__all__ = ["Run", "TrainingResult", "resume", "train"]
