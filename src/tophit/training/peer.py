"""Losses and miners of pytorch-metric-learning by name; it is imported only when a recipe asks for it."""

import difflib
import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from tophit.errors import UsageError
from tophit.recipe.choices import Peer

_MODULES = {"loss": "losses", "miner": "miners"}


def build_peer(part: str, section: Peer, known: Mapping[str, Any]) -> nn.Module:
    """Return the loss or miner that a recipe's section ``part`` names, as ``pml/NAME`` with its arguments.

    ``known`` are arguments that follow from the run, given where the class takes them and the recipe does not say.
    """
    try:
        module = importlib.import_module(f"pytorch_metric_learning.{_MODULES[part]}")
    except ImportError as error:
        raise UsageError(
            f"{part}.name: pml/{section.kind} needs pytorch-metric-learning: pip install pytorch-metric-learning."
        ) from error
    names = [name for name, value in vars(module).items() if inspect.isclass(value)]
    if section.kind not in names:
        near = difflib.get_close_matches(section.kind, names, 1)
        hint = f" Did you mean 'pml/{near[0]}'?" if near else f" There are: {', '.join(sorted(names))}."
        raise UsageError(f"{part}.name: pytorch-metric-learning has no {part} '{section.kind}'.{hint}")
    kind = getattr(module, section.kind)
    given = {name: known[name] for name in inspect.signature(kind).parameters if name in known}
    try:
        return kind(**{**given, **section.arguments})
    except Exception as error:  # its constructors raise several types for a wrong argument
        takes = ", ".join(_parameters(kind)) or "none of its own"
        raise UsageError(f"{part}: pml/{section.kind} refused its arguments: {error}. It takes: {takes}.") from error


def _parameters(kind: type) -> list[str]:
    names = inspect.signature(kind).parameters
    return [name for name, parameter in names.items() if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
