"""The figures of a report, each a ``Drawing``: what a run logged, what a model does on its test classes."""

from tophit.report.figures.comparison import comparison_drawings
from tophit.report.figures.maps import map_drawing
from tophit.report.figures.pairs import evaluation_drawings
from tophit.report.figures.pictures import centres_drawing, gallery_drawing
from tophit.report.figures.training import run_drawings

__all__ = [
    "centres_drawing",
    "comparison_drawings",
    "evaluation_drawings",
    "gallery_drawing",
    "map_drawing",
    "run_drawings",
]
