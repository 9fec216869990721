"""SoftTriple loss: a softmax over classes of several centres, with the regulariser that merges them."""

from typing import Annotated, Literal

import torch
from torch.nn import functional

from tophit.losses.class_similarity import class_similarity, own_and_others
from tophit.losses.proxy_loss import ProxyLoss
from tophit.options import AtLeastZero, Doc, OnUnitVectors, Positive, ProxyCount, Regularizer, Softness
from tophit.registry import register


def soft_triple(similarity: torch.Tensor, labels: torch.Tensor, scale: float, margin: float) -> torch.Tensor:
    """Return for each sample (N,) the loss of similarities S (C, N) with labels (N,), the multi-proxy paper's Eq. 2.

    -log(exp(scale (S_y - margin)) / (exp(scale (S_y - margin)) + sum_{c != y} exp(scale S_c)))
    """
    own, others = own_and_others(similarity, labels, scale, "classes")
    return functional.softplus(others - scale * (own - margin))


@register("loss", "soft-triple")
class SoftTripleLoss(ProxyLoss):
    """SoftTriple loss (Qian et al., ICCV 2019), including the centre regulariser.

    Each class has K trainable centres; the similarity to a class is a soft maximum over them (``gamma``); a sample's
    own class must win a softmax over all classes by a margin. ``regularizer`` times half the mean distance of a
    class's centres is added (the multi-proxy paper's Eq. 3), with ``regularizer_eps`` under its root as in the
    authors' code. ``proxies_per_class="auto"`` starts with 10 and lets the regulariser find the number.

    The loss is the mean over the batch, as in the authors' code; ``reduction="sum"`` is the multi-proxy paper's Eq. 4.

    Shapes: embeddings (N, d), labels (N,) integers in 0..num_classes-1; returns a scalar. ``proxies`` is (C, K, d).
    Embeddings and proxies are normalised inside unless ``normalize=False``. Computed in float32 at least.

    Its gradient depends only on differences between classes; Multi-Proxy-Anchor's also on the similarities themselves.

    >>> loss = SoftTripleLoss(num_classes=3, embedding_dim=4, proxies_per_class=2)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        proxies_per_class: ProxyCount = 10,
        scale: Annotated[Positive, Doc("Scale of the similarities in the softmax.")] = 20.0,
        margin: Annotated[float, Doc("By how much a sample's own class must win.")] = 0.01,
        gamma: Softness = 0.1,
        regularizer: Regularizer = 0.2,
        regularizer_eps: Annotated[AtLeastZero, Doc("Added under the root of the regularizer.")] = 1e-5,
        reduction: Annotated[Literal["mean", "sum"], Doc("Over the batch; the multi-proxy paper uses sum.")] = "mean",
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(num_classes, embedding_dim, proxies_per_class, normalize)
        self.scale = scale
        self.margin = margin
        self.gamma = gamma
        self.regularizer = regularizer
        self.regularizer_eps = regularizer_eps
        self.reduction = reduction

    def compute(self, proxies: torch.Tensor, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean or sum over the batch plus the regulariser's term (Eq. 4)."""
        similarity, spread = class_similarity(proxies, embeddings, self.gamma, self.normalize, self.regularizer_eps)
        terms = soft_triple(similarity, labels, self.scale, self.margin)
        loss = terms.sum()
        if self.reduction == "mean":
            loss = loss / max(1, len(terms))
        return loss + self.regularizer * spread
