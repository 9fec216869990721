"""Tophit: image retrieval by deep metric learning, from training to search.

What is offered here is imported on first use, so that ``import tophit`` takes a moment and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    """Import what ``__all__`` names on first use."""
    if name in _PACKAGES:
        return import_module(f"tophit.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'tophit' has no attribute '{name}'")
    found = getattr(import_module(_ELSEWHERE.get(name, "tophit.api")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
