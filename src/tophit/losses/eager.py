"""Functions that torch.compile leaves as they are."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def eager(function: Callable[P, T]) -> Callable[P, T]:
    """Keep a function out of compiled graphs: the shapes inside it depend on the data, as the number of positives."""
    return torch.compiler.disable(function)  # type: ignore[return-value]
