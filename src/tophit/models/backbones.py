"""The registry of backbones: a name gives a network from images to a feature map, and what it expects of them."""

import difflib
import fnmatch
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from tophit.data.preprocessing import Preprocessing
from tophit.errors import TophitError, UsageError


class Backbone(nn.Module):
    """A network from images (N, 3, H, W) to a feature map (N, ``channels``, h, w)."""

    channels: int


@dataclass(frozen=True)
class BackboneSpec:
    """How to make a backbone: its network, the pictures it expects, and where its trained weights come from."""

    build: Callable[[], Backbone]
    preprocessing: Preprocessing
    pretrained: Callable[[], dict[str, torch.Tensor]] | None


_SPECS: dict[str, BackboneSpec] = {}


def register_backbone(
    name: str,
    preprocessing: Preprocessing,
    pretrained: Callable[[], dict[str, torch.Tensor]] | None = None,
) -> Callable[[Callable[[], Backbone]], Callable[[], Backbone]]:
    """Register the decorated builder under a name that recipes can use."""

    def add(build: Callable[[], Backbone]) -> Callable[[], Backbone]:
        _SPECS[name] = BackboneSpec(build, preprocessing, pretrained)
        return build

    return add


def backbone_names(pattern: str = "*") -> list[str]:
    """Return the registered names that match a pattern such as ``efficientnet*``."""
    return sorted(fnmatch.filter(_SPECS, pattern))


def backbone_spec(name: str) -> BackboneSpec:
    """Return what is registered under a name."""
    if name not in _SPECS:
        near = difflib.get_close_matches(name, _SPECS, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise UsageError(f"There is no backbone '{name}'.{hint} Choices: {', '.join(backbone_names())}.")
    return _SPECS[name]


def build_backbone(name: str, weights: str = "pretrained") -> Backbone:
    """Build a backbone with weights that are ``pretrained``, ``random``, or in a file (safetensors or PyTorch)."""
    spec = backbone_spec(name)
    backbone = spec.build()
    if weights == "random":
        return backbone
    if weights == "pretrained":
        if spec.pretrained is None:
            raise UsageError(f"The backbone '{name}' has no pretrained weights; use weights: random, or a file.")
        state = spec.pretrained()
    else:
        state = read_weights(weights)
    try:
        backbone.load_state_dict(state)
    except RuntimeError as error:
        raise TophitError(f"The weights in '{weights}' do not fit '{name}': {error}") from error
    return backbone


def read_weights(path: str) -> dict[str, torch.Tensor]:
    """Read tensors from a safetensors file, or from a PyTorch file without unpickling anything else."""
    try:
        if path.endswith(".safetensors"):
            return load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pickle protocol: what can't be loaded raises
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise TophitError(f"There is no weights file '{path}'.") from None
    except (SafetensorError, pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise TophitError(
            f"'{path}' does not hold plain tensors (safetensors, or a PyTorch state dict): {error}"
        ) from error
