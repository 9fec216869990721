"""What ``import tophit`` offers: each command of the command line as a function that returns a typed result.

Nothing prints unless ``progress=True``. What is wrong raises an exception with the sentence that the command line
prints. Heavy imports wait until a function needs them.
"""

from tophit.api.arguments import Model, RecipeFields
from tophit.api.calibrated import calibrate, name
from tophit.api.functions import begin_run, compare, evaluate, plan, report, resume, train
from tophit.api.vectors import Embeddings, embed, images_for, index

__all__ = [
    "Embeddings",
    "Model",
    "RecipeFields",
    "begin_run",
    "calibrate",
    "compare",
    "embed",
    "evaluate",
    "images_for",
    "index",
    "name",
    "plan",
    "report",
    "resume",
    "train",
]
