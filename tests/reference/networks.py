"""GoogLeNet and the original ResNet-50 written out as their publishers' layer lists have them, in double precision.

They take a flat mapping of names to arrays and share nothing with the package: normalisation and pooling are loops.
"""

import math

import numpy as np
import torch
from torch.nn import functional


def conv(x: torch.Tensor, weights: dict, name: str, stride: int = 1, pad: int = 0) -> torch.Tensor:
    return functional.conv2d(x, weights[f"{name}.weight"].double(), weights[f"{name}.bias"].double(), stride, pad)


def pool_ceil(x: torch.Tensor) -> torch.Tensor:
    """Caffe's 3x3 maximum with stride 2: the last window may hang over the border, but must begin inside."""
    batch, channels, height, width = x.shape
    out = torch.empty(batch, channels, math.ceil((height - 3) / 2) + 1, math.ceil((width - 3) / 2) + 1, dtype=x.dtype)
    for i in range(out.shape[2]):
        for j in range(out.shape[3]):
            out[:, :, i, j] = x[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].amax((2, 3))
    return out


def normalise_channels(x: torch.Tensor) -> torch.Tensor:
    """Caffe's LRN across channels: local_size 5, alpha 1e-4, beta 0.75."""
    out = torch.empty_like(x)
    for channel in range(x.shape[1]):
        near = x[:, max(0, channel - 2) : channel + 3]
        out[:, channel] = x[:, channel] / (1 + 1e-4 / 5 * (near**2).sum(1)) ** 0.75
    return out


def googlenet_stem(image: torch.Tensor, weights: dict) -> torch.Tensor:
    """Up to the first 1x1 convolution of the second stage."""
    x = pool_ceil(conv(image.double(), weights, "conv1", 2, 3).clamp(min=0))
    return conv(normalise_channels(x), weights, "conv2r").clamp(min=0)


def googlenet(image: torch.Tensor, weights: dict) -> torch.Tensor:
    x = conv(googlenet_stem(image, weights), weights, "conv2", 1, 1).clamp(min=0)
    x = pool_ceil(normalise_channels(x))
    for block in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        if block in ("4a", "5a"):
            x = pool_ceil(x)
        own = {name.removeprefix(f"i{block}."): value for name, value in weights.items() if f"i{block}." in name}
        one = conv(x, own, "c1")
        three = conv(conv(x, own, "c3r").clamp(min=0), own, "c3", 1, 1)
        five = conv(conv(x, own, "c5r").clamp(min=0), own, "c5", 1, 2)
        around = functional.pad(x, (1, 1, 1, 1), value=-math.inf).unfold(2, 3, 1).unfold(3, 3, 1).amax((4, 5))
        x = torch.cat([one, three, five, conv(around, own, "pp")], 1).clamp(min=0)
    return x


def keras_resnet50(pixels: np.ndarray, arrays: dict[str, np.ndarray]) -> torch.Tensor:
    """Keras's ResNet-50 on RGB pixels (H, W, 3), 0 to 255: BGR less a mean, epsilon 1e-3, stride in the first 1x1."""
    x = torch.from_numpy(pixels[:, :, ::-1] - np.asarray([103.939, 116.779, 123.68])).permute(2, 0, 1)[None].double()

    def layer(x: torch.Tensor, name: str, norm: str, stride: int = 1, pad: int = 0) -> torch.Tensor:
        own = {part: torch.from_numpy(np.asarray(arrays[f"{name}/{part}"], float)) for part in ("kernel", "bias")}
        x = functional.conv2d(x, own["kernel"].permute(3, 2, 0, 1), own["bias"], stride, pad)
        gamma, beta, mean, variance = (
            torch.from_numpy(np.asarray(arrays[f"{norm}/{part}"], float))[:, None, None]
            for part in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        return (x - mean) / (variance + 1e-3).sqrt() * gamma + beta

    x = functional.max_pool2d(layer(x, "conv1", "bn_conv1", 2, 3).clamp(min=0), 3, 2, 1)
    for stage, blocks in ((2, "abc"), (3, "abcd"), (4, "abcdef"), (5, "abc")):
        for block in blocks:
            name, stride = f"{stage}{block}_branch", 2 if block == "a" and stage > 2 else 1
            y = layer(x, f"res{name}2a", f"bn{name}2a", stride).clamp(min=0)
            y = layer(y, f"res{name}2b", f"bn{name}2b", 1, 1).clamp(min=0)
            y = layer(y, f"res{name}2c", f"bn{name}2c")
            x = (y + (layer(x, f"res{name}1", f"bn{name}1", stride) if block == "a" else x)).clamp(min=0)
    return x
