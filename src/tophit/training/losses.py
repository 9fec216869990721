"""From the recipe's loss section to the loss itself."""

from collections.abc import Callable
from typing import Any

from torch import nn

from tophit import losses
from tophit.recipe.choices import Peer
from tophit.recipe.section import Section
from tophit.training.peer import build_peer

_MAKERS: dict[str, Callable[[int, int, dict[str, Any]], nn.Module]] = {
    "proxy-anchor": lambda classes, dim, fields: losses.ProxyAnchorLoss(classes, dim, **fields),
    "topk-precision": lambda classes, dim, fields: losses.TopKPrecisionLoss(**fields),
    "pnp": lambda classes, dim, fields: losses.PNPLoss(**fields),
    "smooth-ap": lambda classes, dim, fields: losses.SmoothAPLoss(**fields),
    "contrastive": lambda classes, dim, fields: losses.ContrastiveLoss(**fields),
    "triplet": lambda classes, dim, fields: losses.TripletLoss(**fields),
    "margin": lambda classes, dim, fields: losses.MarginLoss(**fields),
    "lifted-structure": lambda classes, dim, fields: losses.LiftedStructureLoss(**fields),
    "n-pair": lambda classes, dim, fields: losses.NPairLoss(**fields),
    "angular": lambda classes, dim, fields: losses.AngularLoss(**fields),
    "multi-proxy-anchor": lambda classes, dim, fields: losses.MultiProxyAnchorLoss(classes, dim, **fields),
    "soft-triple": lambda classes, dim, fields: losses.SoftTripleLoss(classes, dim, **fields),
    "proxy-nca": lambda classes, dim, fields: losses.ProxyNCALoss(classes, dim, **fields),
    "proxy-nca++": lambda classes, dim, fields: losses.ProxyNCALoss(classes, dim, probability=True, **fields),
}


def build_loss(section: Section, classes: int, dim: int) -> nn.Module:
    """Return the loss that a recipe's section names, for a number of classes and embeddings of a length.

    A section's fields are the loss's arguments, under the same names.
    """
    if isinstance(section, Peer):
        return build_peer("loss", section, {"num_classes": classes, "embedding_size": dim})
    fields = section.model_dump()
    return _MAKERS[fields.pop("name")](classes, dim, fields)
