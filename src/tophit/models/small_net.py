"""A small convolutional net for small images, to train from scratch on a CPU."""

from torch import nn

from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import Backbone, Stage, register_backbone

_LAYERS_A_BLOCK = 4


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

    def stages(self) -> list[Stage]:
        """Return the blocks."""
        blocks = [self.layers[i : i + _LAYERS_A_BLOCK] for i in range(0, len(self.layers), _LAYERS_A_BLOCK)]
        return [Stage(f"block {number}", block, (block,)) for number, block in enumerate(blocks, 1)]


@register_backbone("small", Preprocessing(size=64, crop=1.0))
def small() -> Backbone:
    """Build the small net; it has no pretrained weights."""
    return SmallNet()
