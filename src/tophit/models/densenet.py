"""DenseNet-201 (Huang et al. 2017), with the parameter names of torchvision's files."""

import re
from collections import OrderedDict

import torch
from torch import nn
from torch.nn import functional

from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Backbone,
    Stage,
    joined,
    register_backbone,
    unrolled,
    without,
)
from tophit.models.weights import PublishedFile, State

_GROWTH = 32
_BLOCKS = (6, 12, 48, 32)


class DenseLayer(nn.Module):
    """BatchNorm, ReLU and convolution, 1x1 then 3x3: adds ``_GROWTH`` new channels to the input's."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * _GROWTH, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * _GROWTH)
        self.conv2 = nn.Conv2d(4 * _GROWTH, _GROWTH, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, inputs + 32, H, W)."""
        y = self.conv1(functional.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(functional.relu(self.norm2(y)))], dim=1)


class Transition(nn.Module):
    """Halves the channels and the side."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, inputs // 2, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, inputs / 2, H / 2, W / 2)."""
        return functional.avg_pool2d(self.conv(functional.relu(self.norm(x))), 2)


class DenseNet201(Backbone):
    """Images (N, 3, H, W) to a feature map (N, 1920, H / 32, W / 32)."""

    channels = 1920

    def __init__(self) -> None:
        super().__init__()
        width = 64
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv0=nn.Conv2d(3, width, 7, 2, padding=3, bias=False),
            norm0=nn.BatchNorm2d(width),
            relu0=nn.ReLU(),
            pool0=nn.MaxPool2d(3, 2, padding=1),
        )
        for block, count in enumerate(_BLOCKS, 1):
            dense = nn.Sequential()
            for i in range(count):
                dense.add_module(f"denselayer{i + 1}", DenseLayer(width + i * _GROWTH))
            layers[f"denseblock{block}"] = dense
            width += count * _GROWTH
            if block < len(_BLOCKS):
                layers[f"transition{block}"] = Transition(width)
                width //= 2
        layers["norm5"] = nn.BatchNorm2d(width)
        self.features = nn.Sequential(layers)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def stages(self) -> list[Stage]:
        """Return the stem, every dense layer and every transition; the last BatchNorm belongs to the last layer."""
        return joined([*unrolled("features", self.features), Stage("relu", functional.relu, ())])


def _from_file(state: State) -> State:
    """Rename ``norm.1`` to ``norm1``: torchvision's published file is older than its current names."""
    state = without(state, "classifier.")
    return {re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", name): x for name, x in state.items()}


@register_backbone(
    "densenet201",
    Preprocessing(mean=IMAGENET_MEAN, std=IMAGENET_STD),
    PublishedFile("https://download.pytorch.org/models/densenet201-c1103571.pth", "c1103571"),
    _from_file,
)
def densenet201() -> Backbone:
    """Build DenseNet-201 without its classifier."""
    return DenseNet201()
