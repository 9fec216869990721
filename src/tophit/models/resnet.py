"""ResNet-50 (He et al. 2016), with the parameter names of torchvision's files.

``resnet50`` has a stage's stride in its first 3x3 convolution, as torchvision does. ``resnet50-v1`` is the original:
the stride is in the 1x1 before it. Their files have the same names and shapes, but each needs its own network.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import IMAGENET_MEAN, IMAGENET_STD, Backbone, Stage, register_backbone, without
from tophit.models.stochastic_depth import StochasticDepth
from tophit.models.weights import PublishedFile, State

_EXPANSION = 4
_BLOCKS = (3, 4, 6, 3)
_EPS, _KERAS_EPS = 1e-5, 1e-3
_KERAS_MEAN = torch.tensor([123.68, 116.779, 103.939])  # red, green, blue


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1, added to the input; the input is projected where the shapes differ."""

    def __init__(self, inputs: int, width: int, stride: int, stride_first: bool = False) -> None:
        super().__init__()
        outputs = width * _EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, stride if stride_first else 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1 if stride_first else stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.depth = StochasticDepth()
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, 4 width, H / stride, W / stride)."""
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return functional.relu(self.depth(y) + (x if self.downsample is None else self.downsample(x)))


class ResNet(Backbone):
    """Images (N, 3, H, W) to a feature map (N, 2048, H / 32, W / 32).

    With ``stride_first``, a stage's stride is in its first 1x1 convolution, not in the 3x3.
    """

    channels = 512 * _EXPANSION

    def __init__(self, stride_first: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(64, 64, _BLOCKS[0], 1, stride_first)
        self.layer2 = _stage(256, 128, _BLOCKS[1], 2, stride_first)
        self.layer3 = _stage(512, 256, _BLOCKS[2], 2, stride_first)
        self.layer4 = _stage(1024, 512, _BLOCKS[3], 2, stride_first)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def stages(self) -> list[Stage]:
        """Return the stem and every residual block."""
        layers = {name: self.get_submodule(name) for name in ("layer1", "layer2", "layer3", "layer4")}
        return [
            Stage("stem", self._stem, (self.conv1, self.bn1)),
            *(
                Stage(f"{layer}.{name}", block, (block,))
                for layer, blocks in layers.items()
                for name, block in blocks.named_children()
            ),
        ]

    def _stem(self, x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool2d(functional.relu(self.bn1(self.conv1(x))), 3, 2, padding=1)


def _stage(inputs: int, width: int, blocks: int, stride: int, stride_first: bool) -> nn.Sequential:
    rest = [Bottleneck(width * _EXPANSION, width, 1) for _ in range(blocks - 1)]
    return nn.Sequential(Bottleneck(inputs, width, stride, stride_first), *rest)


def _from_file(state: State) -> State:
    return without(state, "fc.")


def _from_keras_too(state: State) -> State:
    return _from_file(_from_keras(state) if "conv1/kernel" in state else state)


def _from_keras(state: State) -> State:
    """Rename Keras's layers, and fold in what torch's network lacks.

    Biases of convolutions go into the means of the BatchNorms behind them, and Keras's larger epsilon into their
    variances. The first convolution takes the order of colours, their scale and their mean.
    """
    ours: State = {}
    for layer, norm, conv_name, norm_name in _keras_layers():
        kernel, bias = state[f"{layer}/kernel"].permute(3, 2, 0, 1), state[f"{layer}/bias"]
        if layer == "conv1":
            kernel = kernel.flip(1)
            bias = bias + torch.einsum("ocij,c->o", kernel, 255 * torch.tensor(IMAGENET_MEAN) - _KERAS_MEAN)
            kernel = kernel * (255 * torch.tensor(IMAGENET_STD))[:, None, None]
        ours[f"{conv_name}.weight"] = kernel.contiguous()
        ours[f"{norm_name}.weight"] = state[f"{norm}/gamma"]
        ours[f"{norm_name}.bias"] = state[f"{norm}/beta"]
        ours[f"{norm_name}.running_mean"] = state[f"{norm}/moving_mean"] - bias
        ours[f"{norm_name}.running_var"] = state[f"{norm}/moving_variance"] + (_KERAS_EPS - _EPS)
        ours[f"{norm_name}.num_batches_tracked"] = torch.tensor(0)
    return ours


def _keras_layers() -> Iterator[tuple[str, str, str, str]]:
    """Yield Keras's names of a convolution and its BatchNorm, and ours."""
    yield "conv1", "bn_conv1", "conv1", "bn1"
    for stage, blocks in enumerate(_BLOCKS, 1):
        for block in range(blocks):
            theirs, ours = f"{stage + 1}{'abcdef'[block]}_branch", f"layer{stage}.{block}"
            for number, letter in enumerate("abc", 1):
                yield f"res{theirs}2{letter}", f"bn{theirs}2{letter}", f"{ours}.conv{number}", f"{ours}.bn{number}"
            if block == 0:
                yield f"res{theirs}1", f"bn{theirs}1", f"{ours}.downsample.0", f"{ours}.downsample.1"


@register_backbone(
    "resnet50",
    Preprocessing(mean=IMAGENET_MEAN, std=IMAGENET_STD),
    PublishedFile(
        "https://download.pytorch.org/models/resnet50-0676ba61.pth",
        "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a",
    ),
    _from_file,
)
def resnet50() -> Backbone:
    """Build ResNet-50 without its classifier."""
    return ResNet()


@register_backbone("resnet50-v1", Preprocessing(mean=IMAGENET_MEAN, std=IMAGENET_STD), from_file=_from_keras_too)
def resnet50_v1() -> Backbone:
    """Build the original ResNet-50 without its classifier; its weights come from a file, such as Keras's."""
    return ResNet(stride_first=True)
