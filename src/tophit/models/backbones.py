"""The registry of backbones: a name gives a network from images to a feature map, and the images it expects."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from tophit.errors import TophitError, UsageError
from tophit.images.preprocessing import Preprocessing
from tophit.models.named import backbone_names
from tophit.models.weights import PublishedFile, State, read_weights
from tophit.registry import find, register

if TYPE_CHECKING:
    from tophit.models.text_tower import TextTower

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_Run = Callable[[torch.Tensor], torch.Tensor]


class Stage(NamedTuple):
    """A step of a backbone's forward pass: its name, the function, and the modules that hold its weights."""

    name: str
    run: _Run
    modules: tuple[nn.Module, ...]


class Backbone(nn.Module):
    """A network from images (N, 3, H, W) to a feature map (N, ``channels``, h, w) or to tokens (N, T, ``channels``).

    The first ``prefix_tokens`` of its tokens have no position in the picture; with ``has_cls`` the very first is
    the class token. ``config`` holds what is needed, besides its name, to build it again. ``joint_channels`` is the
    length of vectors in the space that a text tower shares; None without one.

    A subclass defines ``stages``, whose composition is the forward pass, or only ``forward``: then it is one stage,
    and can be trained as a whole or not at all.
    """

    channels: int
    prefix_tokens: int = 0
    has_cls: bool = False
    joint_channels: int | None = None
    config: dict[str, Any] | None = None

    def joint(self, x: torch.Tensor) -> torch.Tensor:
        """Map the output to unit vectors (N, ``joint_channels``) in the space that a text tower shares."""
        raise NotImplementedError(f"{type(self).__name__} has no text tower")

    def stages(self) -> list[Stage]:
        """Return the forward pass as steps, the first one first. Training can freeze any number of first ones.

        Weights that no stage names belong to the first one.
        """
        if type(self).forward is Backbone.forward:
            raise NotImplementedError(f"{type(self).__name__} defines neither stages nor forward")
        return [Stage("network", self.forward, (self,))]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the feature map or the tokens after the last stage."""
        for stage in self.stages():
            x = stage.run(x)
        return x


@dataclass(frozen=True)
class BackboneSpec:
    """How to make a backbone: its network, the pictures it expects, and where its trained weights come from.

    ``from_file`` maps the names in common weight files to the network's own, and leaves out what is not part of it.
    """

    build: Callable[[], Backbone]
    preprocessing: Preprocessing
    pretrained: Callable[[], State] | None
    from_file: Callable[[State], State] = dict
    text: "Callable[[], TextTower] | None" = None
    """Gives the text tower that belongs to the trained weights."""


def register_backbone(
    name: str,
    preprocessing: Preprocessing | None = None,
    pretrained: Callable[[], State] | PublishedFile | None = None,
    from_file: Callable[[State], State] = dict,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated builder under a name that recipes can use.

    A name that ends with a slash, such as ``timm/``, stands for all models of a library; the builder then takes the
    model's name and its saved ``config``, and returns a ``BackboneSpec``.
    """

    def add(build: Callable[..., Any]) -> Callable[..., Any]:
        read = pretrained.read if isinstance(pretrained, PublishedFile) else pretrained
        spec = BackboneSpec(build, preprocessing or Preprocessing(), read, from_file)
        return register("backbone", name, spec=spec)(build)

    return add


def backbone_spec(name: str, config: dict[str, Any] | None = None) -> BackboneSpec:
    """Return what is registered under a name, or what a library provides for ``LIBRARY/NAME``."""
    entry = find("backbone", name)
    if entry.name.endswith("/"):
        return entry.load()(name.removeprefix(entry.name), config)
    spec = entry.told().get("spec")
    if spec is None:
        raise UsageError(f"The backbone '{name}' is not registered: decorate it with tophit.models.register_backbone.")
    return spec


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
    own, problems = _fit(backbone, spec, state)
    if problems:
        raise TophitError(f"The weights in '{weights}' do not fit '{name}': {problems}.{_what_fits(name, state)}")
    backbone.load_state_dict(own, strict=False)  # older files lack the counters of BatchNorm
    return backbone


def _fit(network: nn.Module, spec: BackboneSpec, state: State) -> tuple[State, str]:
    """Return a file's weights under the network's names, and why they do not fit; nothing if they do."""
    try:
        own = spec.from_file(state)
    except KeyError as error:  # it looked like a format that it is not
        return {}, f"{error} is missing"
    return own, misfits(network, own)


def misfits(network: nn.Module, state: State, most: int = 3) -> str:
    """Return how the names and shapes of tensors differ from a network's, in words; nothing if they fit."""
    expected = network.state_dict()
    needed = [name for name in expected if not name.endswith(".num_batches_tracked")]
    found = {
        "missing": [name for name in needed if name not in state],
        "unknown": [name for name in state if name not in expected],
        "of another shape": [
            f"{name} ({'x'.join(map(str, state[name].shape))}, not {'x'.join(map(str, expected[name].shape))})"
            for name in needed
            if name in state and state[name].shape != expected[name].shape
        ],
    }
    return "; ".join(
        f"{len(names)} {word}: {', '.join(names[:most])}{', ...' if len(names) > most else ''}"
        for word, names in found.items()
        if names
    )


def _what_fits(name: str, state: State) -> str:
    """Return a sentence that names the backbones that weights fit, if there are any."""
    fitting = []
    for other in backbone_names():
        spec = find("backbone", other).told().get("spec")
        if spec is None or other == name:
            continue
        with torch.device("meta"):
            network = spec.build()
        if not _fit(network, spec, state)[1]:
            fitting.append(other)
    return f" They fit {' or '.join(fitting)}: set embedder.backbone." if fitting else ""


def without(state: State, *heads: str) -> State:
    """Return a state without the parts whose names begin with one of ``heads``, such as a classifier."""
    return {name: value for name, value in state.items() if not name.startswith(heads)}


# What describes stages.


def unrolled(name: str, module: nn.Module) -> list[Stage]:
    """Return a module as stages: one for each member of a sequence and of the sequences in it, else one."""
    if not isinstance(module, nn.Sequential) or type(module).forward is not nn.Sequential.forward:
        return [Stage(name, module, (module,))]
    return [stage for child, each in module.named_children() for stage in unrolled(f"{name}.{child}", each)]


def joined(stages: Iterable[Stage]) -> list[Stage]:
    """Join every stage that has no matrix or kernel of its own, such as a norm or a pooling, to the one before it."""
    found: list[Stage] = []
    for stage in stages:
        if found and not any(weights.ndim > 1 for module in stage.modules for weights in module.parameters()):
            before = found.pop()
            stage = Stage(before.name, _composed(before.run, stage.run), before.modules + stage.modules)
        found.append(stage)
    return found


def _composed(first: _Run, second: _Run) -> _Run:
    return lambda x: second(first(x))


# What the backbones of other libraries share.


def import_library(name: str, backbone: str, install: str) -> ModuleType:
    """Import a library that a backbone needs; a broken library gives a different error from a missing one."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise TophitError(f"The backbone '{backbone}' needs {name}, which can't be imported: {error}") from error
        raise UsageError(f"The backbone '{backbone}' needs {name}; install it with: pip install {install}") from None
    except (ImportError, RuntimeError, AttributeError) as error:
        raise TophitError(f"The backbone '{backbone}' needs {name}, which can't be imported: {error}") from error


def unreachable(backbone: str, error: Exception, advice: str) -> TophitError:
    """Return the error for weights that could not be downloaded."""
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return TophitError(
        f"The weights of '{backbone}' are not on this machine and can't be downloaded ({first_line}); {advice}"
    )


def inside_model(state: State) -> State:
    """Rename a library's weights to ours, which hold its network as ``model``."""
    return {name if name.startswith("model.") else f"model.{name}": value for name, value in state.items()}


def three(values: Sequence[float]) -> tuple[float, float, float]:
    """Return a library's numbers of the three channels as plain ones."""
    red, green, blue = values
    return float(red), float(green), float(blue)
