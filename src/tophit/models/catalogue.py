"""All backbones that Tophit knows: importing this registers them."""

from tophit.models import bn_inception, densenet, efficientnet_lite, given_features, googlenet, resnet, small_net

__all__ = ["bn_inception", "densenet", "efficientnet_lite", "given_features", "googlenet", "resnet", "small_net"]
