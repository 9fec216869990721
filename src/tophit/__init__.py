"""Tophit: image retrieval by deep metric learning, from training to search.

What is offered here is imported on first use, so that ``import tophit`` takes a moment and needs no torch.
"""

from typing import TYPE_CHECKING

from tophit.lazy import on_first_use

__version__ = "0.1.0"
__all__ = [
    "Index",
    "__version__",
    "batches",
    "calibrate",
    "compare",
    "embed",
    "evaluate",
    "evaluation",
    "index",
    "load",
    "losses",
    "methods",
    "mining",
    "name",
    "open_catalogue",
    "plan",
    "report",
    "resume",
    "train",
]

if TYPE_CHECKING:
    from tophit import batches, evaluation, losses, methods, mining
    from tophit.api import calibrate, compare, embed, evaluate, index, name, plan, report, resume, train
    from tophit.models import load
    from tophit.search import Index
    from tophit.search.catalogue import open_catalogue

_PACKAGES = ("batches", "evaluation", "losses", "methods", "mining")
_ELSEWHERE = {"Index": "tophit.search", "load": "tophit.models", "open_catalogue": "tophit.search.catalogue"}
_OFFERED = {name: "tophit.api" for name in __all__ if name != "__version__"}

__getattr__, __dir__ = on_first_use(
    __name__, {**_OFFERED, **_ELSEWHERE, **{name: f"tophit.{name}" for name in _PACKAGES}}
)
