"""A small convolutional net for small images, to train from scratch on a CPU."""

import torch
from torch import nn

from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import Backbone, register_backbone


class SmallNet(Backbone):
    """Four blocks of convolution, BatchNorm, ReLU and pooling: (N, 3, H, W) to (N, 256, H / 16, W / 16)."""

    channels = 256

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for width in widths:
            layers += [
                nn.Conv2d(inputs, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
            inputs = width
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the feature map after the last block."""
        return self.layers(x)


@register_backbone("small", Preprocessing(size=64, crop=1.0))
def small() -> Backbone:
    """Build the small net; it has no pretrained weights."""
    return SmallNet()
