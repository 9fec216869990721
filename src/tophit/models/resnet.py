"""ResNet-50 (He et al. 2016), with the stride in the 3x3 convolution and the parameter names of torchvision's files."""

import torch
from torch import nn
from torch.nn import functional

from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import IMAGENET_MEAN, IMAGENET_STD, Backbone, Stage, register_backbone, without
from tophit.models.weights import PublishedFile, State

_EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1, added to the input; the input is projected where the shapes differ."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * _EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, 4 width, H / stride, W / stride)."""
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return functional.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(Backbone):
    """Images (N, 3, H, W) to a feature map (N, 2048, H / 32, W / 32)."""

    channels = 512 * _EXPANSION

    def __init__(self, blocks: tuple[int, int, int, int] = (3, 4, 6, 3)) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(64, 64, blocks[0], 1)
        self.layer2 = _stage(256, 128, blocks[1], 2)
        self.layer3 = _stage(512, 256, blocks[2], 2)
        self.layer4 = _stage(1024, 512, blocks[3], 2)
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


def _stage(inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    rest = [Bottleneck(width * _EXPANSION, width, 1) for _ in range(blocks - 1)]
    return nn.Sequential(Bottleneck(inputs, width, stride), *rest)


def _from_file(state: State) -> State:
    return without(state, "fc.")


@register_backbone(
    "resnet50",
    Preprocessing(mean=IMAGENET_MEAN, std=IMAGENET_STD),
    PublishedFile("https://download.pytorch.org/models/resnet50-0676ba61.pth", "0676ba61"),
    _from_file,
)
def resnet50() -> Backbone:
    """Build ResNet-50 without its classifier."""
    return ResNet()
