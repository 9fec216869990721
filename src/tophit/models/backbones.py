"""The registry of backbones: a name gives a network from images to a feature map, and what it expects of them."""

import difflib
import fnmatch
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from tophit.errors import TophitError, UsageError
from tophit.images.preprocessing import Preprocessing
from tophit.models.weights import PublishedFile, State, read_weights

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Backbone(nn.Module):
    """A network from images (N, 3, H, W) to a feature map (N, ``channels``, h, w) or to tokens (N, T, ``channels``).

    The first ``prefix_tokens`` of its tokens stand for no place in the picture; with ``has_cls`` the very first is
    the class token. ``config`` is what, besides its name, is needed to build it again.
    """

    channels: int
    prefix_tokens: int = 0
    has_cls: bool = False
    config: dict[str, Any] | None = None


@dataclass(frozen=True)
class BackboneSpec:
    """How to make a backbone: its network, the pictures it expects, and where its trained weights come from.

    ``from_file`` maps the names in the files people have to the network's own, and leaves out what is no part of it.
    """

    build: Callable[[], Backbone]
    preprocessing: Preprocessing
    pretrained: Callable[[], State] | None
    from_file: Callable[[State], State] = dict


_SPECS: dict[str, BackboneSpec] = {}
_LIBRARIES: dict[str, Callable[[str, dict[str, Any] | None], BackboneSpec]] = {}


def register_backbone(
    name: str,
    preprocessing: Preprocessing,
    pretrained: Callable[[], State] | PublishedFile | None = None,
    from_file: Callable[[State], State] = dict,
) -> Callable[[Callable[[], Backbone]], Callable[[], Backbone]]:
    """Register the decorated builder under a name that recipes can use."""

    def add(build: Callable[[], Backbone]) -> Callable[[], Backbone]:
        read = pretrained.read if isinstance(pretrained, PublishedFile) else pretrained
        _SPECS[name] = BackboneSpec(build, preprocessing, read, from_file)
        return build

    return add


def register_library(
    prefix: str, make: Callable[[str, dict[str, Any] | None], BackboneSpec]
) -> Callable[[str, dict[str, Any] | None], BackboneSpec]:
    """Let names ``prefix/NAME`` stand for models of another library; ``make(NAME, config)`` describes one."""
    _LIBRARIES[prefix] = make
    return make


def backbone_names(pattern: str = "*") -> list[str]:
    """Return the registered names that match a pattern such as ``efficientnet*``."""
    return sorted(fnmatch.filter(_SPECS, pattern))


def is_backbone(name: str) -> bool:
    """Say whether a name is registered, or that of a library's model."""
    return name in _SPECS or (name.split("/", 1)[0] in _LIBRARIES and "/" in name)


def backbone_spec(name: str, config: dict[str, Any] | None = None) -> BackboneSpec:
    """Return what is registered under a name, or what a library says of ``LIBRARY/NAME``."""
    library, _, model = name.partition("/")
    if library in _LIBRARIES and model:
        return _LIBRARIES[library](model, config)
    if name not in _SPECS:
        near = difflib.get_close_matches(name, _SPECS, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        others = ", ".join(f"{prefix}/NAME" for prefix in _LIBRARIES)
        raise UsageError(f"There is no backbone '{name}'.{hint} Choices: {', '.join(backbone_names())}, {others}.")
    return _SPECS[name]


def build_backbone(name: str, weights: str = "pretrained", spec: BackboneSpec | None = None) -> Backbone:
    """Build a backbone with weights that are ``pretrained``, ``random``, or in a file (safetensors or PyTorch)."""
    spec = spec or backbone_spec(name)
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
        backbone.load_state_dict(spec.from_file(state))
    except RuntimeError as error:
        raise TophitError(f"The weights in '{weights}' do not fit '{name}': {error}") from error
    return backbone


def without(state: State, *heads: str) -> State:
    """Return a state without the parts whose names begin with one of ``heads``, such as a classifier."""
    return {name: value for name, value in state.items() if not name.startswith(heads)}
