"""Losses: ``nn.Module``s from embeddings (N, d) and labels (N,) to a scalar. They know only tensors."""

from tophit.losses.proxy_anchor import ProxyAnchorLoss

__all__ = ["ProxyAnchorLoss"]
