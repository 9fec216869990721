"""Models: backbones, pooling, and the embedder that joins them."""

from tophit.models.backbones import Backbone, backbone_names, register_backbone
from tophit.models.embedder import Embedder, build_embedder, load

__all__ = ["Backbone", "Embedder", "backbone_names", "build_embedder", "load", "register_backbone"]
