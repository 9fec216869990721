"""What the proxy losses have in common: the proxies, the checks, unit vectors, full precision, merged centres."""

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from tophit.losses.label_sets import NO_LABEL, are_sets
from tophit.losses.loss import Loss

# What ``auto`` starts with: the paper's number for classes of dozens of images. Merging can only reduce it.
AUTO_PROXIES = 10
# Unit vectors closer than this are one centre: their cosine is above 0.995, an angle below 5.7 degrees.
MERGE_DISTANCE = 0.1


class ProxyLoss(Loss, ABC):
    """A loss with trainable proxies; a subclass's equation is in ``compute``.

    ``proxies`` is (C, K, d), or (C, d) if ``proxies_per_class`` is None: a loss with one proxy per class. Labels are
    (N,), or several for each image (N, J), padded with -1: each is one more own class, and means are over all of them.
    """

    compares_images = False
    takes_sets = True

    def __init__(
        self, num_classes: int, embedding_dim: int, proxies_per_class: int | Literal["auto"] | None, normalize: bool
    ) -> None:
        super().__init__()
        counts = (
            () if proxies_per_class is None else (AUTO_PROXIES if proxies_per_class == "auto" else proxies_per_class,)
        )
        shape = (num_classes, *counts, embedding_dim)
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in shape):
            raise ValueError(
                f"classes, proxies per class and dimensions must be whole numbers of at least 1, got {shape}"
            )
        self.normalize = normalize
        self.proxies_per_class = proxies_per_class
        # Vectors of about unit length: at a given learning rate, the length determines how fast a proxy turns.
        self.proxies = nn.Parameter(torch.randn(shape) / embedding_dim**0.5)

    @abstractmethod
    def compute(self, proxies: torch.Tensor, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of raw proxies (C, K, d), embeddings (N, d) of the same type, and labels (N,)."""

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        indices_tuple: None = None,
        ref_emb: None = None,
        ref_labels: None = None,
    ) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with labels (N,) or (N, J).

        The other arguments are pytorch-metric-learning's and must be None: proxies take the place of other samples.
        """
        if indices_tuple is not None or ref_emb is not None or ref_labels is not None:
            name = type(self).__name__
            raise ValueError(f"{name} compares embeddings with proxies: it takes no indices_tuple or ref_emb")
        self._check(embeddings, labels)
        with torch.autocast(embeddings.device.type, enabled=False):
            x = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
            if self.normalize:
                x = functional.normalize(x, dim=1)
            proxies = self.proxies.to(x.dtype)
            return self.compute(proxies if proxies.ndim == 3 else proxies[:, None], x, labels)

    def _check(self, embeddings: torch.Tensor, labels: torch.Tensor) -> None:
        classes, dim = self.proxies.shape[0], self.proxies.shape[-1]
        fits = labels.shape == embeddings.shape[:1] or (are_sets(labels) and len(labels) == len(embeddings))
        if embeddings.ndim != 2 or embeddings.shape[1] != dim or not fits:
            shapes = f"{tuple(embeddings.shape)} and {tuple(labels.shape)}"
            raise ValueError(f"expected embeddings (N, {dim}) and labels (N,), got {shapes}")
        if not embeddings.is_floating_point() or labels.is_floating_point() or labels.dtype == torch.bool:
            raise ValueError(f"expected float embeddings and integer labels, got {embeddings.dtype} and {labels.dtype}")
        least = NO_LABEL if are_sets(labels) else 0
        if labels.numel() and not least <= int(labels.min()) <= int(labels.max()) < classes:
            raise ValueError(f"labels must be from 0 to {classes - 1}, got {int(labels.min())} to {int(labels.max())}")


@torch.no_grad()
def merged_centres(proxies: torch.Tensor, distance: float = MERGE_DISTANCE) -> torch.Tensor:
    """Return for each proxy (C, K) the first proxy of its class with the same centre; proxies are (C, K, d).

    Two proxies share a centre if they are closer than ``distance`` on the unit sphere, or joined by a chain of such
    proxies.
    """
    w = functional.normalize(proxies.double(), dim=2)
    near = (2 - 2 * torch.bmm(w, w.transpose(1, 2))).clamp(min=0) < distance**2
    near |= torch.eye(proxies.shape[1], dtype=torch.bool, device=near.device)
    for _ in range(proxies.shape[1].bit_length()):  # each round doubles the length of the chains
        near = torch.bmm(near.double(), near.double()) > 0
    return near.int().argmax(dim=2)


def distinct_centres(proxies: torch.Tensor, distance: float = MERGE_DISTANCE) -> torch.Tensor:
    """Return how many distinct centres each class (C,) has among its proxies (C, K, d) or (C, d).

    >>> distinct_centres(torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.01, 1.0]]])).tolist()
    [2]
    """
    if proxies.ndim == 2:
        proxies = proxies[:, None]
    centres = merged_centres(proxies, distance)
    return (centres == torch.arange(proxies.shape[1], device=centres.device)).sum(dim=1)
