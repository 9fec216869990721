"""The figures of a report, each a ``Drawing``: what a run logged, what a model does on its test classes."""

from tophit.report.figures.pairs import evaluation_drawings
from tophit.report.figures.training import run_drawings

__all__ = ["evaluation_drawings", "run_drawings"]
