"""Models: backbones, pooling, and the embedder that joins them."""

from typing import TYPE_CHECKING

from tophit.lazy import on_first_use

if TYPE_CHECKING:
    from tophit.models.backbones import Backbone, register_backbone
    from tophit.models.embedder import Embedder, build_embedder, load
    from tophit.models.named import backbone_names

__all__ = ["Backbone", "Embedder", "backbone_names", "build_embedder", "load", "register_backbone"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "Backbone": "tophit.models.backbones",
        "backbone_names": "tophit.models.named",
        "register_backbone": "tophit.models.backbones",
        "Embedder": "tophit.models.embedder",
        "build_embedder": "tophit.models.embedder",
        "load": "tophit.models.embedder",
    },
)
