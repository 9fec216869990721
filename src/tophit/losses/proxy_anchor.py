"""Proxy-Anchor loss: one proxy a class pulls its class and pushes the others, the hardest most."""

import torch
from torch import nn
from torch.nn import functional


def proxy_anchor(similarity: torch.Tensor, labels: torch.Tensor, alpha: float, margin: float) -> torch.Tensor:
    """Return the Proxy-Anchor loss of similarities (N, C) of N samples to C classes; labels are (N,) in 0..C-1.

    With C+ the classes present in the batch (Kim et al., CVPR 2020, Eq. 4; the multi-proxy paper's Eq. 6 with K = 1):

        1/|C+| sum_{c in C+} log(1 + sum_{x: y = c} exp(-alpha (s_xc - margin)))
        + 1/C  sum_c         log(1 + sum_{x: y != c} exp(alpha (s_xc + margin)))
    """
    own = functional.one_hot(labels, similarity.shape[1]).bool()
    pull = _log_one_plus_sum_exp(-alpha * (similarity - margin), own)
    push = _log_one_plus_sum_exp(alpha * (similarity + margin), ~own)
    present = own.any(dim=0)
    return pull.sum() / present.sum().clamp(min=1) + push.mean()


def _log_one_plus_sum_exp(exponents: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Return log(1 + sum exp(x)) over the rows of each column that ``where`` selects: 0 for an empty column."""
    chosen = exponents.masked_fill(~where, float("-inf"))
    zero = exponents.new_zeros(1, exponents.shape[1])
    return torch.logsumexp(torch.cat([zero, chosen]), dim=0)


class ProxyAnchorLoss(nn.Module):
    """Proxy-Anchor loss (Kim et al., CVPR 2020): each class has one trainable proxy.

    Shapes: embeddings (N, d), labels (N,) integers in 0..num_classes-1; a scalar comes out. Embeddings and proxies are
    normalised inside unless ``normalize=False``. Computed in float32 at least.

    Use it as the first thing to try: it needs no miner, takes any batch, and converges fast. Its proxies need a
    higher learning rate than the network (recipe: ``optimizer.proxies``). Multi-Proxy-Anchor extends it to several
    proxies a class.

    >>> loss = ProxyAnchorLoss(num_classes=3, embedding_dim=4)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        alpha: float = 32.0,
        margin: float = 0.1,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.alpha = alpha
        self.margin = margin
        self.normalize = normalize
        # Rows of about unit length: with a given learning rate the length sets how fast a proxy turns.
        self.proxies = nn.Parameter(torch.randn(num_classes, embedding_dim) / embedding_dim**0.5)

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        indices_tuple: None = None,
        ref_emb: None = None,
        ref_labels: None = None,
    ) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with labels (N,).

        The further arguments are pytorch-metric-learning's and must be None: proxies take the place of other samples.
        """
        if indices_tuple is not None or ref_emb is not None or ref_labels is not None:
            raise ValueError("Proxy-Anchor compares embeddings with proxies: it takes no indices_tuple or ref_emb")
        classes, dim = self.proxies.shape
        if embeddings.ndim != 2 or embeddings.shape[1] != dim or labels.shape != embeddings.shape[:1]:
            shapes = f"{tuple(embeddings.shape)} and {tuple(labels.shape)}"
            raise ValueError(f"expected embeddings (N, {dim}) and labels (N,), got {shapes}")
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise ValueError(f"labels must be from 0 to {classes - 1}, got {int(labels.min())} to {int(labels.max())}")
        with torch.autocast(embeddings.device.type, enabled=False):
            x = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
            proxies = self.proxies.to(x.dtype)
            if self.normalize:
                x, proxies = functional.normalize(x, dim=1), functional.normalize(proxies, dim=1)
            return proxy_anchor(x @ proxies.T, labels, self.alpha, self.margin)
