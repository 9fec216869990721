"""Methods: how a training step is made from a batch, a loss and optimizers."""

from tophit.methods.base import Method, TrainingBatch
from tophit.methods.generation import GenerationMethod
from tophit.methods.memory import BatchMemory
from tophit.methods.plain import PlainMethod
from tophit.methods.projection import ProjectionMethod
from tophit.methods.stepper import Stepper

__all__ = [
    "BatchMemory",
    "GenerationMethod",
    "Method",
    "PlainMethod",
    "ProjectionMethod",
    "Stepper",
    "TrainingBatch",
]
