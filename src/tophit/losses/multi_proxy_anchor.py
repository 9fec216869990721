"""Multi-Proxy-Anchor losses: a class has K proxies, and its local centres may stay apart."""

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from torch.nn import functional

from tophit.losses.class_similarity import class_similarity, own_and_others
from tophit.losses.label_sets import memberships
from tophit.losses.proxy_loss import ProxyLoss
from tophit.options import AtLeastZero, Doc, OnUnitVectors, Positive, ProxyCount, Regularizer, Softness
from tophit.registry import register


def class_wise(similarity: torch.Tensor, labels: torch.Tensor, alpha: float, margin: float) -> torch.Tensor:
    """Return MPA of similarities S (C, N) with labels (N,), Eq. 6. With one proxy per class it is Proxy-Anchor.

        1/|C+| sum_{c in C+} log(1 + sum_{x: y = c} exp(-alpha (S_cx - margin)))
        + 1/C  sum_c         log(1 + sum_{x: y != c} exp(alpha (S_cx + margin)))

    C+ are the classes in the batch. The paper's C- is read as all classes, as in Proxy-Anchor.
    """
    own, others = own_and_others(similarity, labels, alpha, "samples", floor=-alpha * margin)
    push = (others + alpha * margin).mean()
    present, group = memberships(labels)[0].unique(return_inverse=True)
    if not len(present):
        return push
    of_class = torch.arange(len(present), device=labels.device)[:, None] == group
    exponents = torch.where(of_class, -alpha * (own - margin), -torch.inf)
    pull = torch.logsumexp(functional.pad(exponents, (1, 0)), dim=1)
    return pull.mean() + push


def data_wise(similarity: torch.Tensor, labels: torch.Tensor, alpha: float, margin: float) -> torch.Tensor:
    """Return MPA-DW of similarities S (C, N) with labels (N,), Eq. 12.

    1/N sum_i log(1 + exp(-alpha (S_yi - margin))) + log(1 + sum_{c != y} exp(alpha (S_ci + margin)))
    """
    own, others = own_and_others(similarity, labels, alpha, "classes", floor=-alpha * margin)
    terms = functional.softplus(-alpha * (own - margin)) + others + alpha * margin
    return terms.sum() / max(1, len(terms))


def all_pairs(similarity: torch.Tensor, labels: torch.Tensor, alpha: float, margin: float) -> torch.Tensor:
    """Return MPA-AP of similarities S (C, N) with labels (N,), Eq. 16.

    1/N sum_i log(1 + exp(alpha (margin - S_yi)) + sum_{c != y} exp(alpha (S_ci + margin)))
    """
    own, others = own_and_others(similarity, labels, alpha, "classes", floor=-alpha * margin)
    terms = torch.logaddexp(others + alpha * margin, alpha * (margin - own))
    return terms.sum() / max(1, len(terms))


VARIANTS: dict[str, Callable[[torch.Tensor, torch.Tensor, float, float], torch.Tensor]] = {
    "class": class_wise,
    "data": data_wise,
    "all-pairs": all_pairs,
}


@register("loss", "multi-proxy-anchor", called=("mpa",))
class MultiProxyAnchorLoss(ProxyLoss):
    """Multi-Proxy-Anchor loss (Saeki et al., 2021, arXiv 2110.03997): MPA, MPA-DW and MPA-AP.

    Each class has K trainable proxies; the similarity to a class is a soft maximum over them (Eq. 1, ``gamma``), and
    ``variant`` says what is compared with what:

        class (MPA)         the samples of each class, the hardest most; Proxy-Anchor is this with K = 1
        data (MPA-DW)       the classes of each sample
        all-pairs (MPA-AP)  the same, including the sample's own class; never above MPA-DW

    ``regularizer`` times half the mean distance of a class's proxies is added (Eq. 3), which merges proxies that
    share a centre. ``proxies_per_class="auto"`` starts with 10 and lets the regulariser find the number: call
    ``tophit.losses.distinct_centres`` afterwards. ``regularizer_eps`` is added under the root of Eq. 3.

    Shapes: embeddings (N, d), labels (N,) integers in 0..num_classes-1; returns a scalar. ``proxies`` is (C, K, d).
    Embeddings and proxies are normalised inside unless ``normalize=False``. Computed in float32 at least.

    Use it where the images of a class may look very different. It needs no miner and takes any batch; its proxies need
    a higher learning rate than the network (recipe: ``optimizer.proxies``).

    >>> loss = MultiProxyAnchorLoss(num_classes=3, embedding_dim=4, proxies_per_class=2, variant="all-pairs")
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        proxies_per_class: ProxyCount = 10,
        variant: Annotated[
            Literal["class", "data", "all-pairs"],
            Doc("What is compared: class (MPA), data (MPA-DW) or all-pairs (MPA-AP)."),
        ] = "class",
        alpha: Annotated[Positive, Doc("Scale of the similarities in the exponent.")] = 32.0,
        margin: Annotated[float, Doc("Margin on the similarities.")] = 0.1,
        gamma: Softness = 0.1,
        regularizer: Regularizer = 0.2,
        regularizer_eps: Annotated[AtLeastZero, Doc("Added under the root of the regularizer.")] = 0.0,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(num_classes, embedding_dim, proxies_per_class, normalize)
        self.variant = variant
        self.alpha = alpha
        self.margin = margin
        self.gamma = gamma
        self.regularizer = regularizer
        self.regularizer_eps = regularizer_eps

    def compute(self, proxies: torch.Tensor, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the variant's loss plus the regulariser's term (Eqs. 7, 13, 17)."""
        similarity, spread = class_similarity(proxies, embeddings, self.gamma, self.normalize, self.regularizer_eps)
        loss = VARIANTS[self.variant](similarity, labels, self.alpha, self.margin)
        return loss + self.regularizer * spread
