"""Methods: how a training step is made from a batch, a loss and optimizers."""

from tophit.methods.daml import DAMLMethod
from tophit.methods.generation import GenerationMethod
from tophit.methods.hdml import HDMLMethod
from tophit.methods.method import Method, RunParts, TrainingBatch
from tophit.methods.plain import BatchMemory, PlainMethod
from tophit.methods.projection import ProjectionMethod
from tophit.methods.stepper import Stepper
from tophit.methods.thsg.settings import GenerationSettings

__all__ = [
    "BatchMemory",
    "DAMLMethod",
    "GenerationMethod",
    "GenerationSettings",
    "HDMLMethod",
    "Method",
    "PlainMethod",
    "ProjectionMethod",
    "RunParts",
    "Stepper",
    "TrainingBatch",
]
