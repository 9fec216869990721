"""Training: from a recipe to a run."""

from typing import TYPE_CHECKING

from tophit.lazy import on_first_use

if TYPE_CHECKING:
    from tophit.training.loop import resume, train
    from tophit.training.result import TrainingResult
    from tophit.training.run import Run

__all__ = ["Run", "TrainingResult", "resume", "train"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "resume": "tophit.training.loop",
        "train": "tophit.training.loop",
        "TrainingResult": "tophit.training.result",
        "Run": "tophit.training.run",
    },
)
