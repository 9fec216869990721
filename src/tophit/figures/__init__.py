"""Figures for reports and comparisons: each is a ``Drawing``, for a page and as files for a paper."""

from tophit.figures.drawing import DRAWING_CSS, Drawing, write_drawings
from tophit.figures.style import has_matplotlib, import_matplotlib

__all__ = ["DRAWING_CSS", "Drawing", "has_matplotlib", "import_matplotlib", "write_drawings"]
