"""BN-Inception (Ioffe and Szegedy 2015), for the Caffe weights commonly used in metric learning.

They take BGR pixels from 0 to 255 minus a mean; the preprocessing is set accordingly.
"""

import re

import torch
from torch import nn
from torch.nn import functional

from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import Backbone, Stage, register_backbone, without
from tophit.models.weights import PublishedFile, State

# name: input, 1x1, (3x3 reduce, 3x3), (double 3x3 reduce, both 3x3), pooled; 0: none, and the block has stride 2
_INCEPTIONS = {
    "3a": (192, 64, 64, 64, 64, 96, 32),
    "3b": (256, 64, 64, 96, 64, 96, 64),
    "3c": (320, 0, 128, 160, 64, 96, 0),
    "4a": (576, 224, 64, 96, 96, 128, 128),
    "4b": (576, 192, 96, 128, 96, 128, 128),
    "4c": (576, 160, 128, 160, 128, 160, 128),
    "4d": (608, 96, 128, 192, 160, 192, 128),
    "4e": (608, 0, 128, 192, 192, 256, 0),
    "5a": (1056, 352, 192, 320, 160, 224, 128),
    "5b": (1024, 352, 192, 320, 192, 224, 128),
}


class _ConvBN(nn.Module):
    """Holds convolutions and their BatchNorms under the names ``x`` and ``x_bn``."""

    def add(self, name: str, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        self.add_module(name, convolution)
        self.add_module(f"{name}_bn", nn.BatchNorm2d(outputs))

    def run(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.get_submodule(f"{name}_bn")(self.get_submodule(name)(x)))


class BNInceptionBlock(_ConvBN):
    """1x1, 3x3, two 3x3 and pooling side by side; without 1x1 and projection it halves the side."""

    def __init__(self, inputs: int, one: int, reduce3: int, three: int, reduce6: int, six: int, pooled: int) -> None:
        super().__init__()
        self.halves = one == 0
        stride = 2 if self.halves else 1
        self.max_pool = False
        if one:
            self.add("1x1", inputs, one)
            self.add("pool_proj", inputs, pooled)
        self.add("3x3_reduce", inputs, reduce3)
        self.add("3x3", reduce3, three, 3, stride)
        self.add("double_3x3_reduce", inputs, reduce6)
        self.add("double_3x3_1", reduce6, six, 3)
        self.add("double_3x3_2", six, six, 3, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to the joined branches."""
        three = self.run("3x3", self.run("3x3_reduce", x))
        six = self.run("double_3x3_2", self.run("double_3x3_1", self.run("double_3x3_reduce", x)))
        if self.halves:
            odd = x.shape[2] % 2, x.shape[3] % 2  # then, without padding, the convolutions give one more position
            return torch.cat([three, six, functional.max_pool2d(x, 3, 2, odd, ceil_mode=True)], dim=1)
        pooled = functional.max_pool2d(x, 3, 1, 1) if self.max_pool else functional.avg_pool2d(x, 3, 1, 1)
        return torch.cat([self.run("1x1", x), three, six, self.run("pool_proj", pooled)], dim=1)


class BNInception(Backbone, _ConvBN):
    """Images (N, 3, H, W), BGR, to a feature map (N, 1024, H / 32, W / 32)."""

    channels = 1024

    def __init__(self) -> None:
        super().__init__()
        self.add("conv1_7x7_s2", 3, 64, 7, 2)
        self.add("conv2_3x3_reduce", 64, 64)
        self.add("conv2_3x3", 64, 192, 3)
        self.blocks = nn.ModuleDict({name: BNInceptionBlock(*widths) for name, widths in _INCEPTIONS.items()})
        last = self.blocks["5b"]
        assert isinstance(last, BNInceptionBlock)
        last.max_pool = True  # the only block that keeps its size and pools by maximum

    def stages(self) -> list[Stage]:
        """Return the stem, whose weights stand beside the blocks, and every block."""
        blocks = [Stage(f"blocks.{name}", block, (block,)) for name, block in self.blocks.items()]
        return [Stage("stem", self._stem, ()), *blocks]

    def _stem(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(self.run("conv1_7x7_s2", x), 3, 2, ceil_mode=True)
        return functional.max_pool2d(self.run("conv2_3x3", self.run("conv2_3x3_reduce", x)), 3, 2, ceil_mode=True)


def _from_file(state: State) -> State:
    """Rename ``inception_3a_1x1`` to ``blocks.3a.1x1``, and flatten the BatchNorms that old files hold as (1, C)."""
    state = without(state, "fc.", "last_linear.", "model.embedding.")
    return {
        re.sub(r"^inception_(\d\w)_", r"blocks.\1.", name.removeprefix("model.")): value.squeeze(0)
        if value.ndim == 2 and value.shape[0] == 1
        else value
        for name, value in state.items()
    }


@register_backbone(
    "bn-inception",
    Preprocessing(mean=(104 / 255, 117 / 255, 128 / 255), std=(1 / 255, 1 / 255, 1 / 255), channel_order="BGR"),
    PublishedFile("http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth", "52deb4733"),
    _from_file,
)
def bn_inception() -> Backbone:
    """Build BN-Inception without its classifier."""
    return BNInception()
