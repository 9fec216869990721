"""Similarity of embeddings to classes of K proxies: the core that the proxy losses share.

Matrices here have a row a class and a column a sample, so that one product of the proxies with the batch gives them
without a copy, and a class's K proxies lie K contiguous rows: a reduction over them runs over whole rows.
"""

import math
from typing import Any, Literal

import torch
from torch import nn

from tophit.losses.eager import eager
from tophit.losses.similarity import similarity_matrix
from tophit.losses.unit import unit

# What ``auto`` starts with: the paper's number for classes of dozens of images. Merging makes it fewer, never more.
AUTO_PROXIES = 10


def class_similarity(proxies: torch.Tensor, embeddings: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return S (C, N) of proxies (C, K, d) and embeddings (N, d), the multi-proxy paper's Eq. 1.

        S(x, c) = sum_k a_k x.w_ck,   a = softmax_k(x.w_ck / gamma)

    The smaller gamma, the nearer to the largest of the K similarities; the larger, the nearer to their mean.
    """
    classes, count, dim = proxies.shape
    similarity = similarity_matrix(proxies.reshape(classes * count, dim), embeddings)
    return similarity if count == 1 else soft_maximum(similarity.view(classes, count, -1), gamma)


@eager
def soft_maximum(values: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return sum_k softmax_k(v_k / gamma) v_k (C, N) of values (C, K, N). Differentiable once."""
    return _SoftMaximum.apply(values, gamma)  # type: ignore[return-value]


class _SoftMaximum(torch.autograd.Function):
    """Keeps one tensor for the backward pass: the derivative a_k (1 + (v_k - S) / gamma)."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, gamma: float) -> torch.Tensor:
        top = values.amax(dim=1, keepdim=True)
        below = values - top  # exact near the largest, where a small gamma magnifies it
        weights = (below / gamma).exp_()
        weights /= weights.sum(dim=1, keepdim=True)
        mean = (weights * below).sum(dim=1, keepdim=True)
        soft = (top + mean).squeeze(1)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(below.sub_(mean).mul_(1 / gamma).add_(1).mul_(weights))
        return soft

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        (slopes,) = ctx.saved_tensors
        return slopes * grad_outputs[0][:, None], None


@eager
def own_and_others(
    similarity: torch.Tensor,
    labels: torch.Tensor,
    scale: float,
    over: Literal["samples", "classes"],
    floor: float = -math.inf,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each sample's similarity to its own class (N,), and a log-sum-exp of the similarities that are not own.

        log(exp(floor) + sum exp(scale S))

    runs over the other samples of each class (C,), or over the other classes of each sample (N,). ``similarity`` is
    S (C, N), ``labels`` (N,). Every proxy loss is a function of these two vectors. Differentiable once.
    """
    return _OwnAndOthers.apply(similarity, labels, scale, 1 if over == "samples" else 0, floor)  # type: ignore


class _OwnAndOthers(torch.autograd.Function):
    """Keeps one matrix for the backward pass: the derivative of the log-sum-exp."""

    @staticmethod
    def forward(
        ctx: Any, similarity: torch.Tensor, labels: torch.Tensor, scale: float, dim: int, floor: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        places = (labels, torch.arange(len(labels), device=labels.device))
        own = similarity[places]
        weights = similarity * scale
        weights[places] = -math.inf
        # An empty group has the lowest float as its top, not -inf: exp(-inf - -inf) is no number.
        top = weights.amax(dim=dim, keepdim=True) if weights.shape[dim] else weights.sum(dim=dim, keepdim=True)
        top.clamp_(min=max(floor, torch.finfo(weights.dtype).min))
        weights.sub_(top).exp_()
        total = weights.sum(dim=dim, keepdim=True) + torch.exp(floor - top)
        if ctx.needs_input_grad[0]:
            weights *= (scale / total).nan_to_num_(posinf=0.0)
            ctx.save_for_backward(weights, labels)
            ctx.dim = dim
        return own, (top + total.log()).squeeze(dim)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None, None]:
        weights, labels = ctx.saved_tensors
        by_own, by_others = grad_outputs
        grad = weights * by_others.unsqueeze(ctx.dim)
        grad[labels, torch.arange(len(labels), device=labels.device)] = by_own
        return grad, None, None, None, None


def centre_spread(proxies: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the centre regulariser of unit proxies (C, K, d), Eq. 3: half the mean distance inside a class.

        sum_c sum_{t < s} sqrt(2 - 2 w_cs.w_ct + eps) / (C K (K - 1)),   0 if K = 1

    Where two proxies coincide and eps = 0, the root has no gradient; it is taken as 0, so merged proxies stay merged.
    """
    classes, count, _ = proxies.shape
    if count == 1 or not classes:
        return proxies.new_zeros(())
    first, second = torch.triu_indices(count, count, 1, device=proxies.device)
    cosines = torch.bmm(proxies, proxies.transpose(1, 2))[:, first, second]
    squared = (2 - 2 * cosines).clamp(min=0) + eps
    # Below the rounding of a cosine a distance is noise, and the root's slope would magnify it.
    apart = squared > 8 * torch.finfo(squared.dtype).eps
    distances = torch.where(apart, squared, 1).sqrt() * apart
    return distances.sum() / (classes * count * (count - 1))


class ProxyLoss(nn.Module):
    """What the proxy losses have in common: the proxies, the checks, unit vectors, full precision.

    A subclass says in ``compute`` what its equation is. ``proxies`` is (C, K, d); one with ``single=True`` has (C, d).
    """

    def __init__(
        self,
        num_classes: int,
        embedding_dim: int,
        proxies_per_class: int | Literal["auto"],
        normalize: bool,
        single: bool = False,
    ) -> None:
        super().__init__()
        count = AUTO_PROXIES if proxies_per_class == "auto" else proxies_per_class
        for name, value in (
            ("num_classes", num_classes),
            ("embedding_dim", embedding_dim),
            ("proxies_per_class", count),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number from 1 on, got {value!r}")
        self.normalize = normalize
        self.proxies_per_class = proxies_per_class
        shape = (num_classes, embedding_dim) if single else (num_classes, count, embedding_dim)
        # Vectors of about unit length: with a given learning rate the length sets how fast a proxy turns.
        self.proxies = nn.Parameter(torch.randn(shape) / embedding_dim**0.5)

    def compute(self, proxies: torch.Tensor, embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of proxies (C, K, d), embeddings (N, d) of the same type, and labels (N,)."""
        raise NotImplementedError

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
            name = type(self).__name__
            raise ValueError(f"{name} compares embeddings with proxies: it takes no indices_tuple or ref_emb")
        self._check(embeddings, labels)
        with torch.autocast(embeddings.device.type, enabled=False):
            x = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
            proxies = self.proxies.to(x.dtype)
            if self.normalize:
                x, proxies = unit(x), unit(proxies)
            return self.compute(proxies if proxies.ndim == 3 else proxies[:, None], x, labels)

    def _check(self, embeddings: torch.Tensor, labels: torch.Tensor) -> None:
        classes, dim = self.proxies.shape[0], self.proxies.shape[-1]
        if embeddings.ndim != 2 or embeddings.shape[1] != dim or labels.shape != embeddings.shape[:1]:
            shapes = f"{tuple(embeddings.shape)} and {tuple(labels.shape)}"
            raise ValueError(f"expected embeddings (N, {dim}) and labels (N,), got {shapes}")
        if not embeddings.is_floating_point() or labels.is_floating_point() or labels.dtype == torch.bool:
            raise ValueError(f"expected float embeddings and integer labels, got {embeddings.dtype} and {labels.dtype}")
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < classes:
            raise ValueError(f"labels must be from 0 to {classes - 1}, got {int(labels.min())} to {int(labels.max())}")


def check_positive(**numbers: float) -> None:
    """Raise ValueError for the first number that is not above 0, by its name."""
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{name} must be above 0, got {number}")
