"""``googlenet-bn``: Inception v1 with BatchNorm, with the parameter names of torchvision's files.

Those weights come from TensorFlow: they take pixels from -1 to 1, and the branch the paper calls 5x5 has a 3x3 kernel.
``googlenet`` is the original, without BatchNorm.
"""

import torch
from torch import nn
from torch.nn import functional

from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import Backbone, Stage, register_backbone, without
from tophit.models.googlenet import INCEPTIONS, inception_stages
from tophit.models.weights import PublishedFile, State

_POOL_BEFORE = {"4a": 3, "5a": 2}  # kernel of the max pooling, stride 2


class ConvBN(nn.Module):
    """Convolution, BatchNorm, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3)
        nn.init.trunc_normal_(self.conv.weight, std=(2 / (inputs * kernel * kernel)) ** 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        return functional.relu(self.bn(self.conv(x)))


class InceptionBN(nn.Module):
    """Four branches side by side: 1x1, 3x3, the one called 5x5, and max pooling."""

    def __init__(self, inputs: int, one: int, reduce3: int, three: int, reduce5: int, five: int, pooled: int) -> None:
        super().__init__()
        self.branch1 = ConvBN(inputs, one, 1)
        self.branch2 = nn.Sequential(ConvBN(inputs, reduce3, 1), ConvBN(reduce3, three, 3))
        self.branch3 = nn.Sequential(ConvBN(inputs, reduce5, 1), ConvBN(reduce5, five, 3))
        self.branch4 = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), ConvBN(inputs, pooled, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, one + three + five + pooled, H, W)."""
        return torch.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], dim=1)


class GoogLeNetBN(Backbone):
    """Images (N, 3, H, W) to a feature map (N, 1024, H / 32, W / 32)."""

    channels = 1024

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = ConvBN(3, 64, 7, 2)
        self.conv2 = ConvBN(64, 64, 1)
        self.conv3 = ConvBN(64, 192, 3)
        for name, widths in INCEPTIONS.items():
            self.add_module(f"inception{name}", InceptionBN(*widths))

    def stages(self) -> list[Stage]:
        """Return the stem and every Inception block, each with the pooling that follows it."""
        blocks = {f"inception{name}": self.get_submodule(f"inception{name}") for name in INCEPTIONS}
        return inception_stages(Stage("stem", self._stem, (self.conv1, self.conv2, self.conv3)), blocks, _POOL_BEFORE)

    def _stem(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(self.conv1(x), 3, 2, ceil_mode=True)
        return functional.max_pool2d(self.conv3(self.conv2(x)), 3, 2, ceil_mode=True)


def _from_file(state: State) -> State:
    return without(state, "fc.", "aux1.", "aux2.")


@register_backbone(
    "googlenet-bn",
    Preprocessing(),
    PublishedFile(
        "https://download.pytorch.org/models/googlenet-1378be20.pth",
        "1378be20a8e875cf1568b8a71654e704449655e34711a959a38b04fb34905cef",
    ),
    _from_file,
)
def googlenet_bn() -> Backbone:
    """Build GoogLeNet with BatchNorm, without its classifiers."""
    return GoogLeNetBN()
