"""``torchvision/NAME``: the classification networks of torchvision."""

from collections import OrderedDict
from typing import Any

import torch
from torch import nn

from tophit.errors import UsageError
from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import Backbone, BackboneSpec, Stage, import_library, joined, register_backbone, unrolled
from tophit.models.weights import PublishedFile, State

_HEADS = ("avgpool", "flatten", "dropout", "fc", "classifier", "head", "heads")
_SIDE = 224


class TorchvisionBackbone(Backbone):
    """The children of a network up to its global pooling or classifier, under their own names."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name, child in trunk(model).items():
            self.add_module(name, child)
        self.relu_last = type(model).__name__ == "DenseNet"  # it calls ReLU as a function
        try:
            with torch.inference_mode():
                _, self.channels, _, _ = self.eval()(torch.zeros(1, 3, _SIDE, _SIDE)).shape
        except (AssertionError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"torchvision's {type(model).__name__} gives no feature map; use timm's version: timm/NAME."
            ) from error
        self.train()

    def stages(self) -> list[Stage]:
        """Return the children in order, and the blocks of those that are sequences."""
        stages = [stage for name, child in self.named_children() for stage in unrolled(name, child)]
        return joined([*stages, Stage("relu", torch.relu, ())] if self.relu_last else stages)


def trunk(model: nn.Module) -> OrderedDict[str, nn.Module]:
    """Return the children that make the feature map, in order."""
    found: OrderedDict[str, nn.Module] = OrderedDict()
    for name, child in model.named_children():
        if name in _HEADS:
            break
        if not name.lower().startswith("aux"):
            found[name] = child
    return found


@register_backbone("torchvision/")
def torchvision_spec(name: str, config: dict[str, Any] | None = None) -> BackboneSpec:
    """Describe a network of torchvision."""
    models: Any = import_library("torchvision", f"torchvision/{name}", "torchvision").models
    if name not in models.list_models(module=models):
        raise UsageError(f"torchvision has no classification model '{name}'; it has {_near(models, name)}.")
    weights = models.get_model_weights(name).DEFAULT
    crop = weights.transforms()
    side, short = crop.crop_size[0], crop.resize_size[0]
    published = PublishedFile(weights.url, _digits(weights.url))

    def build() -> Backbone:
        fast = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        return TorchvisionBackbone(models.get_model(name, weights=None, **fast))

    def from_file(state: State) -> State:
        ours = build().state_dict()
        return {key: value for key, value in state.items() if key in ours}

    preprocessing = Preprocessing(side, side / short, tuple(crop.mean), tuple(crop.std))
    if name in ("googlenet", "inception_v3"):  # they undo the usual normalisation internally
        preprocessing = Preprocessing(side, side / short)
    return BackboneSpec(build, preprocessing, published.read, from_file)


def _digits(url: str) -> str:
    return url.rsplit("-", 1)[-1].split(".", 1)[0]


def _near(models: Any, name: str) -> str:
    return ", ".join(models.list_models(module=models, include=f"{name[:4]}*")[:4]) or "resnet18, convnext_tiny"
