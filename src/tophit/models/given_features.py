"""The backbone for data that are already features: ``features/1280`` stands for any source of vectors that long."""

from typing import Any

import torch

from tophit.errors import UsageError
from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import Backbone, BackboneSpec, register_backbone

LIBRARY = "features/"


class GivenFeatures(Backbone):
    """No network: the pooled features come from a feature file, and only a head is added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Raise an error: the network that made the features is not known."""
        raise UsageError(
            f"This embedder takes features of length {self.channels} from a file, not images: the network that made "
            "them is not part of it. Use embedder.embed_arrays(features), or train on images."
        )


@register_backbone("features/")
def _spec(model: str, config: dict[str, Any] | None) -> BackboneSpec:
    if not model.isdecimal() or int(model) < 1:
        raise UsageError(
            f"The backbone of a feature file must be features/LENGTH, such as features/1280, not '{model}'."
        )
    return BackboneSpec(lambda: GivenFeatures(int(model)), Preprocessing(), dict)
