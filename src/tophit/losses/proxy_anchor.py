"""Proxy-Anchor loss: one proxy per class pulls its class and pushes the others, the hardest most."""

from typing import Annotated

import torch

from tophit.losses.class_similarity import class_similarity
from tophit.losses.multi_proxy_anchor import class_wise
from tophit.losses.proxy_loss import ProxyLoss
from tophit.options import Doc, OnUnitVectors, Positive
from tophit.registry import register


@register("loss", "proxy-anchor")
class ProxyAnchorLoss(ProxyLoss):
    """Proxy-Anchor loss (Kim et al., CVPR 2020, Eq. 4): each class has one trainable proxy.

    It is Multi-Proxy-Anchor's class variant with K = 1, where the regulariser is 0.

    Shapes: embeddings (N, d), labels (N,) integers in 0..num_classes-1; returns a scalar. ``proxies`` is (C, d).
    Embeddings and proxies are normalised inside unless ``normalize=False``. Computed in float32 at least.

    Try it first: it needs no miner, takes any batch, and converges fast. Its proxies need a
    higher learning rate than the network (recipe: ``optimizer.proxies``).

    >>> loss = ProxyAnchorLoss(num_classes=3, embedding_dim=4)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        alpha: Annotated[Positive, Doc("Scale of the similarities in the exponent.")] = 32.0,
        margin: Annotated[float, Doc("Margin on the similarities.")] = 0.1,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(num_classes, embedding_dim, None, normalize)
        self.alpha = alpha
        self.margin = margin

    def compute(self, proxies: torch.Tensor, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the class-wise loss of the cosines."""
        similarity = class_similarity(proxies, embeddings, 1.0, self.normalize).similarity
        return class_wise(similarity, labels, self.alpha, self.margin)
