"""A backbone cut between two of its stages: the trunk before the cut can be frozen, the tail after it learns."""

from typing import Any

import torch
from torch import nn

from tophit.errors import UsageError
from tophit.images.preprocessing import VIEWS_VERSION
from tophit.models.backbones import Backbone
from tophit.models.embedder import Embedder, digest
from tophit.models.weights import State

_LEAST_SHARE = 0.35  # of the backbone's weights that learn unless a recipe says how many stages do
_TOLERANCE = 1e-4


def stage_tensors(backbone: Backbone) -> list[State]:
    """Return the parameters and buffers of each stage, by their names in the backbone; each is in one stage.

    Those that no stage names, such as a class token, belong to the first; shared ones to the first that uses them.
    """
    stages = backbone.stages()
    owner: dict[int, int] = {}
    for number, stage in enumerate(stages):
        for module in stage.modules:
            for tensor in module.state_dict(keep_vars=True).values():
                owner.setdefault(id(tensor), number)
    found: list[State] = [{} for _ in stages]
    for name, tensor in backbone.state_dict(keep_vars=True).items():
        found[owner.get(id(tensor), 0)][name] = tensor
    return found


def frozen_stages(backbone: Backbone, last: int | None) -> int:
    """Return how many first stages are frozen so that the ``last`` ones learn; more than there are means all of them.

    By default as many learn as it takes to hold a share ``_LEAST_SHARE`` of the weights.
    """
    tensors = stage_tensors(backbone)
    if last is not None:
        return max(0, len(tensors) - last)
    sizes = [sum(tensor.numel() for tensor in stage.values()) for stage in tensors]
    left, learned = len(sizes), 0
    while left > 1 and learned < _LEAST_SHARE * sum(sizes):
        left -= 1
        learned += sizes[left]
    return left


@torch.inference_mode()
def stage_shapes(embedder: Embedder) -> list[tuple[int, ...]]:
    """Return the shape of what each stage gives for one image of the embedder's size, without the batch."""
    backbone, size = embedder.backbone, embedder.preprocessing.size
    training, shapes = backbone.training, []
    backbone.eval()
    x = torch.zeros(1, 3, size, size, device=embedder.device)
    for stage in backbone.stages():
        x = stage.run(x)
        shapes.append(tuple(x.shape[1:]))
    backbone.train(training)
    return shapes


@torch.inference_mode()
def check_stages(embedder: Embedder) -> None:
    """Raise if a backbone's stages, one after the other, do not give what its forward pass gives."""
    backbone = embedder.backbone
    if type(backbone).forward is Backbone.forward:
        return
    name, training = embedder.architecture["backbone"], backbone.training
    stages = backbone.eval().stages()
    if len(stages) < 2:
        raise UsageError(_NO_STAGES.format(name=name, why="does not describe its stages"))
    size = embedder.preprocessing.size
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0)).to(embedder.device)
    expected, found = backbone(images), images
    try:
        for stage in stages:
            found = stage.run(found)
        equal = found.shape == expected.shape and bool(
            (found - expected).abs().max() <= _TOLERANCE * expected.abs().max()
        )
    except (RuntimeError, TypeError, AttributeError, ValueError):  # a module that takes more than the one before gives
        equal = False
    backbone.train(training)
    if not equal:
        raise UsageError(_NO_STAGES.format(name=name, why="is not its children one after the other"))


_NO_STAGES = (
    "embedder.trainable: the last stages of '{name}' can't be trained alone, since the network {why}; use 'head' or "
    "'all', or another backbone."
)


class Trunk(nn.Module):
    """The first ``count`` stages of an embedder's backbone, from images (N, 3, H, W) to activations.

    Runtimes run it as they run an embedder: its features are the activations, not pooled.
    """

    def __init__(self, embedder: Embedder, count: int) -> None:
        super().__init__()
        self.backbone = _FirstStages(embedder.backbone, count)
        kept = ("backbone", "config")
        self.architecture = {name: value for name, value in embedder.architecture.items() if name in kept}
        self.architecture["stages"] = count
        self.preprocessing = embedder.preprocessing
        self.device = embedder.device
        self.channels = embedder.backbone.channels

    def pool(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activations as they are."""
        return x

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Map preprocessed images (N, 3, H, W) to activations (N, ...)."""
        return self.backbone(images.contiguous(memory_format=torch.channels_last))

    def feature_fingerprint(self) -> str:
        """Return a digest of everything that determines the activations."""
        tensors = stage_tensors(self.backbone.whole)[: self.backbone.count]
        state = {name: tensor for stage in tensors for name, tensor in stage.items()}
        return digest(state, [self.architecture, self.preprocessing.to_json(), VIEWS_VERSION])


class _FirstStages(Backbone):
    """The first stages of a backbone, as a backbone."""

    def __init__(self, whole: Backbone, count: int) -> None:
        super().__init__()
        self.whole, self.count = whole, count

    def stages(self) -> list[Any]:
        return self.whole.stages()[: self.count]


def run_tail(embedder: Embedder, count: int, activations: torch.Tensor) -> torch.Tensor:
    """Map the activations after ``count`` stages to pooled features (N, channels)."""
    for stage in embedder.backbone.stages()[count:]:
        activations = stage.run(activations)
    return embedder.pool(activations)
