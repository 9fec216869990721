"""``googlenet``: Inception v1 as its paper has it (Szegedy et al. 2015), the backbone of PROFS and THSG.

No BatchNorm: convolutions have biases, and two layers normalise each position over neighbouring channels. The layout
is that of Caffe's bvlc_googlenet. Its weights were trained on BGR pixels from 0 to 255 less a mean; the reader of such
a file folds both into the first convolution, so that the network takes RGB with ImageNet's mean and deviation.
"""

from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.nn import functional

from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import IMAGENET_MEAN, IMAGENET_STD, Backbone, Stage, register_backbone, without
from tophit.models.weights import PublishedFile, State

# name: input, 1x1, (3x3 reduce, 3x3), (5x5 reduce, 5x5), pooled: table 1 of the paper
INCEPTIONS = {
    "3a": (192, 64, 96, 128, 16, 32, 32),
    "3b": (256, 128, 128, 192, 32, 96, 64),
    "4a": (480, 192, 96, 208, 16, 48, 64),
    "4b": (512, 160, 112, 224, 24, 64, 64),
    "4c": (512, 128, 128, 256, 24, 64, 64),
    "4d": (512, 112, 144, 288, 32, 64, 64),
    "4e": (528, 256, 160, 320, 32, 128, 128),
    "5a": (832, 256, 160, 320, 32, 128, 128),
    "5b": (832, 384, 192, 384, 48, 128, 128),
}
_POOL_BEFORE = {"4a": 3, "5a": 3}  # kernel of the max pooling, stride 2
_CAFFE_NAMES = {
    "conv1/7x7_s2": "conv1",
    "conv2/3x3_reduce": "conv2r",
    "conv2/3x3": "conv2",
    "1x1": "c1",
    "3x3_reduce": "c3r",
    "3x3": "c3",
    "5x5_reduce": "c5r",
    "5x5": "c5",
    "pool_proj": "pp",
}
_CAFFE_MEAN = (123.0, 117.0, 104.0)  # red, green, blue


class ChannelNorm(nn.Module):
    """Local response normalisation over ``span`` neighbouring channels: ``x / (1 + alpha / span * sum of x^2)^0.75``.

    The sum is a 1x1 convolution with a band of ones: over channels-last maps of this size it takes about a third of
    the time of torch's ``local_response_norm``, which averages in 3D, and so does its gradient.
    """

    band: torch.Tensor

    def __init__(self, channels: int, span: int = 5, alpha: float = 1e-4) -> None:
        super().__init__()
        numbers = torch.arange(channels)
        near = (numbers[:, None] - numbers[None, :]).abs() <= span // 2
        self.register_buffer("band", (near * (alpha / span))[:, :, None, None].float(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, channels, H, W) to the same shape."""
        root = torch.rsqrt(1 + functional.conv2d(x * x, self.band.to(x.dtype)))
        return x * root * root.sqrt()  # the power -1/2 - 1/4


class Inception(nn.Module):
    """Four branches side by side: 1x1, 3x3, 5x5, and max pooling with a 1x1."""

    def __init__(self, inputs: int, one: int, reduce3: int, three: int, reduce5: int, five: int, pooled: int) -> None:
        super().__init__()
        self.c1 = _convolution(inputs, one, 1)
        self.c3r = _convolution(inputs, reduce3, 1)
        self.c3 = _convolution(reduce3, three, 3)
        self.c5r = _convolution(inputs, reduce5, 1)
        self.c5 = _convolution(reduce5, five, 5)
        self.pp = _convolution(inputs, pooled, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, one + three + five + pooled, H, W)."""
        three = self.c3(functional.relu(self.c3r(x)))
        five = self.c5(functional.relu(self.c5r(x)))
        pooled = self.pp(functional.max_pool2d(x, 3, 1, padding=1))
        return functional.relu(torch.cat([self.c1(x), three, five, pooled], dim=1))


class GoogLeNet(Backbone):
    """Images (N, 3, H, W) to a feature map (N, 1024, H / 32, W / 32)."""

    channels = 1024

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = _convolution(3, 64, 7, 2)
        self.norm1 = ChannelNorm(64)
        self.conv2r = _convolution(64, 64, 1)
        self.conv2 = _convolution(64, 192, 3)
        self.norm2 = ChannelNorm(192)
        for name, widths in INCEPTIONS.items():
            self.add_module(f"i{name}", Inception(*widths))

    def stages(self) -> list[Stage]:
        """Return the stem and every Inception block, each with the pooling that follows it."""
        stem = Stage("stem", self._stem, (self.conv1, self.norm1, self.conv2r, self.conv2, self.norm2))
        return inception_stages(stem, {f"i{name}": self.get_submodule(f"i{name}") for name in INCEPTIONS}, _POOL_BEFORE)

    def _stem(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm1(_halve(functional.relu(self.conv1(x))))
        x = functional.relu(self.conv2(functional.relu(self.conv2r(x))))
        return _halve(self.norm2(x))


def inception_stages(stem: Stage, blocks: Mapping[str, nn.Module], pool_before: Mapping[str, int]) -> list[Stage]:
    """Return the stem and the blocks in order; ``pool_before`` has the kernel of the max pooling before a block."""
    names = list(blocks)
    kernels = [pool_before.get(name[-2:]) for name in [*names[1:], ""]]
    pairs = zip(blocks.items(), kernels, strict=True)
    return [stem, *(Stage(name, _then_pooled(block, kernel), (block,)) for (name, block), kernel in pairs)]


def _then_pooled(block: nn.Module, kernel: int | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a block followed by max pooling with stride 2, if there is a kernel for it."""
    return block if kernel is None else lambda x: functional.max_pool2d(block(x), kernel, 2, ceil_mode=True)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    made = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)
    nn.init.kaiming_normal_(made.weight, nonlinearity="relu")
    nn.init.zeros_(made.bias)  # pyright: ignore[reportArgumentType]
    return made


def _halve(x: torch.Tensor) -> torch.Tensor:
    return functional.max_pool2d(x, 3, 2, ceil_mode=True)


def _from_file(state: State) -> State:
    """Take a file with our names, or one of Caffe; leave the classifiers out."""
    if "conv1/7x7_s2.weight" in state:
        state = _from_caffe(state)
    return without(state, "fc.")


def _from_caffe(state: State) -> State:
    """Rename Caffe's layers, and fold the order of colours, their scale and mean into the first convolution."""
    ours: State = {}
    for name, value in state.items():
        layer, part = name.rsplit(".", 1)
        block, _, within = layer.partition("/")
        if block.startswith("inception_") and within in _CAFFE_NAMES:
            ours[f"i{block.removeprefix('inception_')}.{_CAFFE_NAMES[within]}.{part}"] = value
        elif layer in _CAFFE_NAMES:
            ours[f"{_CAFFE_NAMES[layer]}.{part}"] = value
        elif not layer.startswith("loss"):
            ours[name] = value  # unknown, so that loading names it
    mean, deviation = 255 * torch.tensor(IMAGENET_MEAN), 255 * torch.tensor(IMAGENET_STD)
    of_rgb = ours["conv1.weight"].flip(1)
    shift = mean - torch.tensor(_CAFFE_MEAN)
    ours["conv1.bias"] = ours["conv1.bias"] + torch.einsum("ocij,c->o", of_rgb, shift)
    ours["conv1.weight"] = of_rgb * deviation[:, None, None]
    return ours


@register_backbone(
    "googlenet",
    Preprocessing(mean=IMAGENET_MEAN, std=IMAGENET_STD),
    PublishedFile(
        "http://dl.caffe.berkeleyvision.org/bvlc_googlenet.caffemodel",
        "405fc5acd08a3bb12de8ee5e23a96bec22f08204",
        algorithm="sha1",
    ),
    _from_file,
)
def googlenet() -> Backbone:
    """Build GoogLeNet without its classifiers."""
    return GoogLeNet()
