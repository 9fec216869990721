"""All backbones that Tophit knows: importing this registers them. Other libraries are imported only when named."""

from tophit.models import (
    bn_inception,
    densenet,
    efficientnet_lite,
    given_features,
    googlenet,
    hf_models,
    resnet,
    small_net,
    timm_models,
    torchvision_models,
)

__all__ = [
    "bn_inception",
    "densenet",
    "efficientnet_lite",
    "given_features",
    "googlenet",
    "hf_models",
    "resnet",
    "small_net",
    "timm_models",
    "torchvision_models",
]
