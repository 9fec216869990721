"""Losses: ``nn.Module``s from embeddings (N, d) and labels (N,) to a scalar. They know only tensors."""

from tophit.losses.pairwise import (
    AngularLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    MarginLoss,
    NPairLoss,
    TripletLoss,
)
from tophit.losses.pnp import PNPLoss, make_variant
from tophit.losses.proxy_anchor import ProxyAnchorLoss
from tophit.losses.smooth_ap import SmoothAPLoss
from tophit.losses.topk_precision import TopKPrecisionLoss

__all__ = [
    "AngularLoss",
    "ContrastiveLoss",
    "LiftedStructureLoss",
    "MarginLoss",
    "NPairLoss",
    "PNPLoss",
    "ProxyAnchorLoss",
    "SmoothAPLoss",
    "TopKPrecisionLoss",
    "TripletLoss",
    "make_variant",
]
