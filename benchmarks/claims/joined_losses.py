"""Two papers' ideas in one loss: proxies beside the ranking of the batch, or beside triplets."""

from typing import Annotated, Any

import torch

from tophit.losses import MultiProxyAnchorLoss, PNPLoss, ProxyAnchorLoss, TripletLoss
from tophit.options import Doc


class ProxiesAndRanking(MultiProxyAnchorLoss):
    """weight * PNP-Dq + (1 - weight) * MPA, each with its paper's settings.

    Shapes: embeddings (N, d), labels (N,) integers in 0..num_classes-1; returns a scalar.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        weight: Annotated[float, Doc("The share of the ranking loss.", ge=0, le=1)] = 0.5,
        proxies_per_class: int = 2,
    ) -> None:
        super().__init__(num_classes, embedding_dim, proxies_per_class)
        self.weight = weight
        self.ranking = PNPLoss()

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # pyright: ignore
        """Return the weighted sum of both losses."""
        proxies = super().forward(embeddings, labels)
        return self.weight * self.ranking(embeddings, labels) + (1 - self.weight) * proxies


class TripletsAndProxies(TripletLoss):
    """Triplets + weight * Proxy-Anchor: a proxy loss that takes triplets, which THSG needs.

    Shapes: embeddings (N, d), labels (N,) integers in 0..num_classes-1; returns a scalar.
    """

    takes_memory = False

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        margin: float = 0.2,
        weight: Annotated[float, Doc("The weight of the proxy loss.", ge=0)] = 1.0,
    ) -> None:
        super().__init__(margin)
        self.weight = weight
        self.anchors = ProxyAnchorLoss(num_classes, embedding_dim)

    def forward(self, embeddings: torch.Tensor, labels: torch.Tensor, *tuples: Any, **more: Any) -> torch.Tensor:
        """Return the sum of both losses."""
        return super().forward(embeddings, labels, *tuples, **more) + self.weight * self.anchors(embeddings, labels)
