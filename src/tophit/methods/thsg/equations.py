"""The equations of THSG (Zhu et al., arXiv 2112.02259), one function each.

T triplets of embeddings of length d are stacked: pairs (2, T, d) are anchors and positives, triplets (3, T, d)
anchors, positives and negatives. Losses are per triplet (T,), sums over its samples as in the paper; a step takes their
mean. Labels (2, T) or (3, T) are class numbers from 0. ``classifier``, ``d1`` and ``d2`` are any functions from
vectors (..., d) to logits: the method's networks. If an equation has parts, they are returned by name.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch.nn import functional

from tophit.losses.pairwise.pair_loss import distance

Network = Callable[[torch.Tensor], torch.Tensor]
Parts = dict[str, torch.Tensor]
Metric = Literal["sql2", "l2"]

# Classes of the conditional discriminator (Eqs. 14 and 16), and the class "generated" of the other one (Eq. 23).
FAKE, REAL = 0, 1
GENERATED = 0
_LEAST_THRESHOLD = 1e-6  # if all pairs coincide the threshold is 0, and Eq. 10 divides by it
_LEAST_LOSS = 1e-6


def pair_distance(a: torch.Tensor, p: torch.Tensor, metric: Metric = "sql2") -> torch.Tensor:
    """Return d(a, p) of Eqs. 10 and 11, (T,): the squared distance, as in Eqs. 15 and 20, or the plain one."""
    squared = (a - p).square().sum(dim=-1)
    return squared if metric == "sql2" else distance(squared)


def plm_lambda(d: torch.Tensor, dt: torch.Tensor | float, alpha: float = 0.2, gamma: float = 0.8) -> torch.Tensor:
    """Eq. 10: how far a pair at distance d (T,) is stretched, from alpha + gamma at 0 through alpha at dt towards 0."""
    dt = torch.as_tensor(dt, dtype=d.dtype, device=d.device).clamp(min=_LEAST_THRESHOLD)
    far = alpha * torch.exp(-(d - dt).clamp(min=0))
    near = alpha + gamma * (1 - d / dt)
    return torch.where(d >= dt, far, near)


def plm(
    a: torch.Tensor,
    p: torch.Tensor,
    dt: torch.Tensor | float,
    alpha: float = 0.2,
    gamma: float = 0.8,
    metric: Metric = "sql2",
    detach_lambda: bool = False,
) -> torch.Tensor:
    """Eq. 9, piecewise linear manipulation: return a* and p*, stacked (2, T, d), 1 + 2 lambda times as far apart.

    The stretched vectors are not normalised. The gradient runs through lambda too, unless it is detached.
    """
    factor = plm_lambda(pair_distance(a, p, metric), dt, alpha, gamma)[..., None]
    push = (factor.detach() if detach_lambda else factor) * (a - p)
    return torch.stack([a + push, p - push])


def balance_weights(loss_g: torch.Tensor | float, beta: float = 0.5) -> tuple[torch.Tensor, torch.Tensor]:
    """Eq. 5: return the weights of the original and of the generated triplets, from the generator's last loss."""
    loss_g = loss_g if isinstance(loss_g, torch.Tensor) else torch.tensor(float(loss_g), dtype=torch.float64)
    worse = beta / loss_g.clamp(min=_LEAST_LOSS)
    return torch.exp(-worse), -torch.expm1(-worse)


def reverse_margin(loss_g2: torch.Tensor | float, nu: float = 0.2, beta: float = 0.5) -> torch.Tensor:
    """Eq. 19: tau_r, which grows from 0 to nu as the generator's loss falls."""
    return nu * balance_weights(loss_g2, beta)[1]


def triplet(x: torch.Tensor, tau: float = 0.2) -> torch.Tensor:
    """Eqs. 6 and 7: [|a - p|^2 - |a - n|^2 + tau]+ of triplets (3, T, d)."""
    a, p, n = x
    return ((a - p).square().sum(dim=-1) - (a - n).square().sum(dim=-1) + tau).clamp(min=0)


def adaptive_reverse_triplet(x: torch.Tensor, tau_r: torch.Tensor | float) -> torch.Tensor:
    """Eq. 18, L_ART: [|a - n|^2 - |a - p|^2 + tau_r]+ of generated triplets (3, T, d)."""
    a, p, n = x
    return ((a - n).square().sum(dim=-1) - (a - p).square().sum(dim=-1) + tau_r).clamp(min=0)


def reconstruction(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Eqs. 15 and 20: |a - a'|^2 + |p - p'|^2 of pairs (2, T, d)."""
    return (before - after).square().sum(dim=(0, -1))


def sample_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the softmax loss of each sample: logits (..., K), labels (...) to (...)."""
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none").reshape(labels.shape)


def softmax_sum(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Eqs. 8, 13, 14, 21 and 22: the sum over a triplet's samples of the softmax loss; (S, T, K), (S, T) to (T,)."""
    return sample_losses(logits, labels).sum(dim=0)


def generator1_loss(
    x1: torch.Tensor,
    x_star: torch.Tensor,
    labels: torch.Tensor,
    classifier: Network,
    d1: Network,
    eta: float = 0.3,
) -> Parts:
    """Eq. 12, with Eqs. 13 to 15: the first generator keeps the label, looks real beside a*, and stays near a*.

    ``x1`` (2, T, d) are a' and p', ``x_star`` (2, T, d) are a* and p*, ``labels`` (2, T).
    """
    class1 = softmax_sum(classifier(x1), labels)
    adv1 = softmax_sum(d1(torch.cat([x1, x_star], dim=-1)), torch.full_like(labels, REAL))
    rec1 = reconstruction(x_star, x1)
    return {"class1": class1, "adv1": adv1, "rec1": rec1, "LG1": eta * (class1 + adv1) + (1 - 2 * eta) * rec1}


def discriminator1_loss(x: torch.Tensor, x1: torch.Tensor, x_star: torch.Tensor, d1: Network) -> torch.Tensor:
    """Eq. 16: tell [a; a*] and [p; p*] from [a'; a*] and [p'; p*]. All are pairs (2, T, d)."""
    logits = d1(torch.cat([torch.cat([x, x1]), torch.cat([x_star, x_star])], dim=-1))
    labels = torch.full(logits.shape[:2], REAL, device=x.device)
    labels[len(x) :] = FAKE
    return softmax_sum(logits, labels) / 2


def generator2_loss(
    x2: torch.Tensor,
    x1: torch.Tensor,
    labels: torch.Tensor,
    classifier: Network,
    d2: Network,
    tau_r: torch.Tensor | float,
    eta: float = 0.3,
    mu: float = 0.3,
) -> Parts:
    """Eq. 17, with Eqs. 18 and 20 to 22: the second generator reverses a triplet, keeps labels and the hard pair.

    ``x2`` (3, T, d) are the generated triplets, ``x1`` (2, T, d) are a' and p', ``labels`` (3, T).
    """
    art = adaptive_reverse_triplet(x2, tau_r)
    rec2 = reconstruction(x1, x2[:2])
    class2 = softmax_sum(classifier(x2), labels)
    adv2 = softmax_sum(d2(x2), labels + 1)
    total = mu * art + (1 - 2 * eta - mu) * rec2 + eta * (class2 + adv2)
    return {"art": art, "rec2": rec2, "class2": class2, "adv2": adv2, "LG2": total}


def discriminator2_loss(
    real: torch.Tensor, x2: torch.Tensor, labels: torch.Tensor, d2: Network, normalize: bool = True
) -> torch.Tensor:
    """Eq. 23: classify a', p' and the original n (``real``, (3, T, d)), and tell generated triplets x2 from them.

    Of its C + 1 classes, 0 is "generated" and c + 1 is class c. ``normalize=False`` leaves out the factor 1/(C + 1),
    which for thousands of classes makes the loss smaller than the weight decay.
    """
    logits = d2(torch.cat([real, x2]))
    targets = torch.cat([labels + 1, torch.full_like(labels, GENERATED)])
    total = softmax_sum(logits, targets)
    return total / logits.shape[-1] if normalize else total


def embedding_loss(
    org: torch.Tensor, class_f: torch.Tensor, hard: torch.Tensor, w_org: torch.Tensor, phi: float = 0.5
) -> torch.Tensor:
    """Eq. 5: the weighted losses of the original and the generated triplets, plus phi times the category loss."""
    return w_org * org + phi * class_f + (1 - w_org) * hard
