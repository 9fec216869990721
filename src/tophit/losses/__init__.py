"""Losses: ``nn.Module``s from embeddings (N, d) and labels (N,) to a scalar. They know only tensors."""

from tophit.losses.blackbox_ap import BlackboxAPLoss
from tophit.losses.fastap import FastAPLoss
from tophit.losses.happier import HAPPIERLoss
from tophit.losses.histogram import HistogramLoss
from tophit.losses.multi_proxy_anchor import MultiProxyAnchorLoss
from tophit.losses.multi_similarity import MultiSimilarityLoss
from tophit.losses.pairwise import (
    AngularLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    MarginLoss,
    NPairLoss,
    TripletLoss,
)
from tophit.losses.pnp import PNPLoss, make_variant
from tophit.losses.prefixes import PrefixLoss
from tophit.losses.proxy_anchor import ProxyAnchorLoss
from tophit.losses.proxy_loss import distinct_centres
from tophit.losses.proxy_nca import ProxyNCALoss, ProxyNCAPlusPlusLoss
from tophit.losses.recall_at_k import RecallAtKLoss
from tophit.losses.roadmap import RoadmapLoss
from tophit.losses.smooth_ap import SmoothAPLoss
from tophit.losses.soft_triple import SoftTripleLoss
from tophit.losses.suprank import SupRankLoss
from tophit.losses.text_alignment import TextAlignedLoss
from tophit.losses.threshold_consistency import ThresholdConsistentLoss
from tophit.losses.topk_precision import TopKPrecisionLoss

__all__ = [
    "AngularLoss",
    "BlackboxAPLoss",
    "ContrastiveLoss",
    "FastAPLoss",
    "HAPPIERLoss",
    "HistogramLoss",
    "LiftedStructureLoss",
    "MarginLoss",
    "MultiProxyAnchorLoss",
    "MultiSimilarityLoss",
    "NPairLoss",
    "PNPLoss",
    "PrefixLoss",
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "ProxyNCAPlusPlusLoss",
    "RecallAtKLoss",
    "RoadmapLoss",
    "SmoothAPLoss",
    "SoftTripleLoss",
    "SupRankLoss",
    "TextAlignedLoss",
    "ThresholdConsistentLoss",
    "TopKPrecisionLoss",
    "TripletLoss",
    "distinct_centres",
    "make_variant",
]
