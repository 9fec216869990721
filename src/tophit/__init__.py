"""Tophit: image retrieval by deep metric learning, from training to search."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "load"]

if TYPE_CHECKING:
    from tophit.models import load


def __getattr__(name: str) -> Any:
    """Load ``load`` on first use, so that ``import tophit`` stays free of torch."""
    if name == "load":
        from tophit.models import load

        return load
    raise AttributeError(f"module 'tophit' has no attribute '{name}'")
