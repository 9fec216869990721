"""The backbone of data that are features already: ``features/1280`` stands for whatever made vectors of that length."""

from typing import Any

import torch

from tophit.errors import UsageError
from tophit.images.preprocessing import Preprocessing
from tophit.models.backbones import Backbone, BackboneSpec, register_backbone

LIBRARY = "features/"


class GivenFeatures(Backbone):
    """No network: the pooled features come from a feature file, only a head is put on them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Refuse: what made the features from images is not known."""
        raise UsageError(
            f"This embedder takes features of length {self.channels} from a file, not images: what made the features "
            "is not part of it. Use embedder.embed_arrays(features), or train on images."
        )


@register_backbone("features/")
def _spec(model: str, config: dict[str, Any] | None) -> BackboneSpec:
    if not model.isdecimal() or int(model) < 1:
        raise UsageError(f"A backbone of given features is features/LENGTH, such as features/1280, not '{model}'.")
    return BackboneSpec(lambda: GivenFeatures(int(model)), Preprocessing(), dict)
