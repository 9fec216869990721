"""Similarity of embeddings to classes of K proxies: the core that the proxy losses share.

Matrices here have one row per class and one column per sample, so that one product of the proxies with the batch gives
them without a copy. Proxies are processed one chunk of classes at a time: normalising, product, soft maximum and
regulariser then work in the processor's cache, and no normalised copy of the proxies is ever kept. What is kept for the
backward pass is one number for each proxy and sample if K > 1, and nothing of that size if K = 1.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch

from tophit.losses.label_sets import are_sets, memberships
from tophit.losses.loss import eager

# Elements in a chunk of similarities: a CPU needs them in its cache, a GPU needs enough to stay busy (not measured).
_CPU_CHUNK = 1 << 18
_GPU_CHUNK = 1 << 26


class ClassSimilarity(NamedTuple):
    """What the losses need to know about the proxies."""

    similarity: torch.Tensor  # S (C, N)
    spread: torch.Tensor  # the centre regulariser, a scalar


@eager
def class_similarity(
    proxies: torch.Tensor, embeddings: torch.Tensor, gamma: float, normalize: bool = True, eps: float = 0.0
) -> ClassSimilarity:
    """Return the similarity of embeddings (N, d) to classes of proxies (C, K, d), and how far apart the proxies are.

    With w the proxies, of unit length if ``normalize``, the multi-proxy paper's Eqs. 1 and 3:

        S(x, c) = sum_k a_k x.w_ck,   a = softmax_k(x.w_ck / gamma)
        spread  = sum_c sum_{t < s} sqrt(2 - 2 w_cs.w_ct + eps) / (C K (K - 1)),   0 if K = 1

    The smaller gamma is, the nearer S is to the largest of the K similarities; the larger, the nearer to their mean.
    Where two proxies coincide and eps = 0, the root has no gradient; it is taken as 0, so merged proxies stay merged.
    Embeddings are not normalised. Both results are differentiable once.
    """
    return ClassSimilarity(*_ClassSimilarity.apply(proxies, embeddings, gamma, normalize, eps))  # type: ignore[misc]


class _ClassSimilarity(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, proxies: torch.Tensor, embeddings: torch.Tensor, gamma: float, normalize: bool, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        classes, count, _ = proxies.shape
        learns = any(ctx.needs_input_grad)
        similarity = proxies.new_empty(classes, len(embeddings))
        lengths = _lengths(proxies) if normalize else None
        slopes = proxies.new_empty(classes, count, len(embeddings)) if learns and count > 1 else None
        pulls = proxies.new_empty(classes, count, count) if count > 1 else None
        spread = proxies.new_zeros(())
        for part in _chunks(proxies, embeddings):
            w = _units(proxies, lengths, part)
            products = torch.mm(w.flatten(0, 1), embeddings.T)
            if count == 1:
                similarity[part] = products
                continue
            assert pulls is not None
            soft_maximum(products.view(len(w), count, -1), gamma, similarity[part], _at(slopes, part))
            spread += _sum_of_distances(w, eps, pulls[part])
        norm = max(1, classes * count * (count - 1))
        ctx.save_for_backward(proxies, embeddings, lengths, slopes, None if pulls is None else pulls.div_(norm))
        return similarity, spread / norm

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        proxies, embeddings, lengths, slopes, pulls = ctx.saved_tensors
        by_similarity, by_spread = grad_outputs
        for_proxies, for_embeddings = ctx.needs_input_grad[:2]
        by_proxies = torch.empty_like(proxies) if for_proxies else None
        by_embeddings = torch.zeros_like(embeddings) if for_embeddings else None
        for part in _chunks(proxies, embeddings):
            w = _units(proxies, lengths, part)
            by_products = by_similarity[part, None]
            by_products = (by_products if slopes is None else by_products * slopes[part]).flatten(0, 1)
            if by_embeddings is not None:
                by_embeddings.addmm_(by_products.T, w.flatten(0, 1))
            if by_proxies is not None:
                grad = torch.mm(by_products, embeddings).view_as(w)
                if pulls is not None:
                    grad.baddbmm_(pulls[part] * by_spread, w)
                if lengths is not None:  # the component along a proxy cannot change its direction
                    along = torch.linalg.vecdot(grad, w).unsqueeze(-1)
                    grad.addcmul_(w, along, value=-1).div_(lengths[part])
                by_proxies[part] = grad
        return by_proxies, by_embeddings, None, None, None


def _chunks(proxies: torch.Tensor, embeddings: torch.Tensor) -> Iterator[slice]:
    """Yield slices of the classes."""
    classes, count, dim = proxies.shape
    limit = _CPU_CHUNK if proxies.device.type == "cpu" else _GPU_CHUNK
    size = max(1, limit // (count * max(dim, len(embeddings))))
    for start in range(0, classes, size):
        yield slice(start, start + size)


def _lengths(proxies: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(proxies, dim=-1, keepdim=True).clamp_(min=1e-12)


def _units(proxies: torch.Tensor, lengths: torch.Tensor | None, part: slice) -> torch.Tensor:
    return proxies[part] if lengths is None else proxies[part] / lengths[part]


def _at(tensor: torch.Tensor | None, part: slice) -> torch.Tensor | None:
    return None if tensor is None else tensor[part]


def soft_maximum(values: torch.Tensor, gamma: float, soft: torch.Tensor, slopes: torch.Tensor | None) -> None:
    """Write sum_k a_k v_k of values (C, K, N) into ``soft`` (C, N), with a = softmax_k(v / gamma).

    Its derivative with respect to each value, a_k (1 + (v_k - soft) / gamma), goes into ``slopes`` (C, K, N).
    """
    top = values.amax(dim=1, keepdim=True)
    below = values - top  # exact near the largest, where a small gamma magnifies it
    weights = (below / gamma).exp_()
    weights /= weights.sum(dim=1, keepdim=True)
    mean = (weights * below).sum(dim=1, keepdim=True)
    torch.add(top, mean, out=soft.unsqueeze(1))
    if slopes is not None:
        torch.mul(below.sub_(mean).div_(gamma).add_(1), weights, out=slopes)


def _sum_of_distances(w: torch.Tensor, eps: float, pulls: torch.Tensor) -> torch.Tensor:
    """Return the sum over pairs of sqrt(2 - 2 w_s.w_t + eps) of proxies (C, K, d).

    The derivative with respect to w_s is sum_t pull_st w_t; the factors go into ``pulls`` (C, K, K).
    """
    squared = torch.bmm(w, w.transpose(1, 2)).mul_(-2).add_(2).clamp_(min=0).add_(eps)
    # Below the rounding of a cosine a distance is noise, and the root's slope would magnify it.
    squared.masked_fill_(squared <= 8 * torch.finfo(w.dtype).eps, torch.inf)
    squared.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    torch.rsqrt(squared, out=pulls).neg_()
    return squared.masked_fill_(squared.isinf(), 0).sqrt_().sum() / 2


@eager
def own_and_others(
    similarity: torch.Tensor,
    labels: torch.Tensor,
    scale: float,
    over: Literal["samples", "classes"],
    floor: float = -torch.inf,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each sample's similarity to its own class (N,), and a log-sum-exp of the similarities to other classes.

        log(exp(floor) + sum exp(scale S))

    runs over the other samples of each class (C,), or over the other classes of each sample (N,). ``similarity`` is
    S (C, N), ``labels`` (N,). Every proxy loss is a function of these two vectors. Differentiable once.

    With several labels for each sample (N, K), padded with -1, N becomes the number of memberships: of samples in
    classes. None of a sample's classes is among its others.
    """
    classes, samples = memberships(labels)
    dim = 1 if over == "samples" else 0
    own, others = _OwnAndOthers.apply(similarity, classes, samples, scale, dim, floor)  # type: ignore
    return own, others[samples] if over == "classes" and are_sets(labels) else others


class _OwnAndOthers(torch.autograd.Function):
    """Keeps one matrix for the backward pass: the derivative of the log-sum-exp."""

    @staticmethod
    def forward(
        ctx: Any,
        similarity: torch.Tensor,
        classes: torch.Tensor,
        samples: torch.Tensor,
        scale: float,
        dim: int,
        floor: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        places = (classes, samples)
        own = similarity[places]
        weights = similarity * scale
        weights[places] = -torch.inf
        # The maximum of an empty group is the lowest float, not -inf: exp(-inf - -inf) is not a number.
        top = weights.amax(dim=dim, keepdim=True) if weights.shape[dim] else weights.sum(dim=dim, keepdim=True)
        top.clamp_(min=max(floor, torch.finfo(weights.dtype).min))
        weights.sub_(top).exp_()
        total = weights.sum(dim=dim, keepdim=True) + torch.exp(floor - top)
        if ctx.needs_input_grad[0]:
            weights *= (scale / total).nan_to_num_(posinf=0.0)
            ctx.save_for_backward(weights, classes, samples)
            ctx.dim = dim
        return own, (top + total.log()).squeeze(dim)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(  # type: ignore[override]
        ctx: Any, *grad_outputs: torch.Tensor
    ) -> tuple[torch.Tensor, None, None, None, None, None]:
        weights, classes, samples = ctx.saved_tensors
        by_own, by_others = grad_outputs
        grad = weights * by_others.unsqueeze(ctx.dim)
        grad[classes, samples] = by_own
        return grad, None, None, None, None, None
