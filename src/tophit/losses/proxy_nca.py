"""ProxyNCA and ProxyNCA++: a sample should be nearer to its class's proxy than to all others."""

from typing import Annotated

import torch
from torch.nn import functional

from tophit.losses.class_similarity import class_similarity, own_and_others
from tophit.losses.proxy_loss import ProxyLoss
from tophit.options import Doc, OnUnitVectors, Positive
from tophit.registry import register


@register("loss", "proxy-nca")
class ProxyNCALoss(ProxyLoss):
    """ProxyNCA (Movshovitz-Attias et al., ICCV 2017, Eq. 4) and ProxyNCA++ (Teh et al., ECCV 2020, Eq. 6).

    With d the squared Euclidean distance of unit vectors, and one trainable proxy per class:

        ProxyNCA     -log(exp(-d(x, p_y) / temperature) / sum_{c != y} exp(-d(x, p_c) / temperature))
        ProxyNCA++   the same with the sum over all classes, so that the ratio is a probability

    ``probability=True`` is the second form; its paper's temperature is 1/9, the first's is 1. The first has no lower
    bound: it keeps pushing samples that are already right. The loss is the mean over the batch.

    Shapes: embeddings (N, d), labels (N,) integers in 0..num_classes-1, at least two classes; ``proxies`` is (C, d).
    Embeddings and proxies are normalised inside unless ``normalize=False``. Computed in float32 at least.

    SoftTriple is the probability form with several centres per class; Proxy-Anchor also weighs samples by their
    hardness in the batch.

    >>> loss = ProxyNCALoss(num_classes=3, embedding_dim=4, temperature=1 / 9, probability=True)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        temperature: Annotated[Positive, Doc("Divisor of the squared distances.")] = 1.0,
        probability: Annotated[bool, Doc("Compare with all classes, including the sample's own: ProxyNCA++.")] = False,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(num_classes, embedding_dim, None, normalize)
        if num_classes < 2:
            raise ValueError("ProxyNCA compares classes, so num_classes must be at least 2")
        self.temperature = temperature
        self.probability = probability

    def compute(self, proxies: torch.Tensor, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean over the batch."""
        # -d / 2 up to the sample's own length, which cancels in the ratio, as does the proxies' length if all are 1.
        nearness = class_similarity(proxies, embeddings, 1.0, self.normalize).similarity
        if not self.normalize:
            nearness = nearness - proxies.square().sum(dim=2) / 2
        scale = 2 / self.temperature
        own, others = own_and_others(nearness, labels, scale, "classes")
        excess = others - scale * own
        return (functional.softplus(excess) if self.probability else excess).sum() / max(1, len(excess))


@register("loss", "proxy-nca++")
class ProxyNCAPlusPlusLoss(ProxyNCALoss):
    """ProxyNCA++ (Teh et al., ECCV 2020): ``ProxyNCALoss`` as a probability, at its paper's low temperature."""

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        temperature: Annotated[Positive, Doc("Divisor of the squared distances.")] = 1 / 9,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(num_classes, embedding_dim, temperature, True, normalize)
