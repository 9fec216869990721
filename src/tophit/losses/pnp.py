"""PNP losses: penalise negatives ranked before positives, with a weight that depends on how many there are."""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch

from tophit.losses.ranking_loss import Candidates, RankingLoss
from tophit.losses.similarity import similarity_matrix
from tophit.losses.soft_rank import Penalty, ranking_loss
from tophit.options import Doc, OnUnitVectors, Positive
from tophit.registry import register

Function = Callable[[torch.Tensor], torch.Tensor]


class PNPVariant(NamedTuple):
    """The cost of R negatives before a positive: the value and its derivative, both elementwise functions of R."""

    value: Function
    derivative: Function


def make_variant(value: Function | None = None, derivative: Function | None = None) -> PNPVariant:
    """Return a variant from its value, from its derivative (the paper's way to design one), or from both.

    A missing derivative comes from autograd; a missing value is the integral of the derivative from 0 to R.

    >>> variant = make_variant(derivative=lambda r: 1 / (1 + r))  # PNP-Ds, whose value is log(1 + R)
    >>> round(float(variant.value(torch.tensor(3.0))), 4)
    1.3863
    """
    if value is None and derivative is None:
        raise ValueError("a variant needs a value, a derivative, or both, as functions of a tensor")
    if value is None:
        assert derivative is not None
        value = _integral(derivative)
    return PNPVariant(value, derivative or _slope(value))


def _slope(value: Function) -> Function:
    def derivative(ranks: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            free = ranks.detach().requires_grad_()
            return torch.autograd.grad(value(free).sum(), free)[0]

    return derivative


def _integral(derivative: Function) -> Function:
    # Integrate over u = log(1 + r) instead of r: penalties change with the magnitude of R, so 48 points are enough.
    points, weights = (torch.from_numpy(array) for array in np.polynomial.legendre.leggauss(48))

    def value(ranks: torch.Tensor) -> torch.Tensor:
        half = torch.log1p(ranks) / 2
        u = half[..., None] * (points.to(ranks) + 1)
        return half * (derivative(torch.expm1(u)) * torch.exp(u) * weights.to(ranks)).sum(dim=-1)

    return value


VARIANTS: dict[str, Callable[[float, float], PNPVariant]] = {
    # Eq. 5, the original: every negative costs the same.
    "O": lambda alpha, b: PNPVariant(lambda r: r, torch.ones_like),
    # Eq. 7 as printed. It is not the integral of Eq. 6: its derivative is 1, not 0, at R = 0.
    "Iu": lambda alpha, b: PNPVariant(lambda r: (1 + r) * torch.log1p(r), lambda r: 1 + torch.log1p(r)),
    # Eq. 9: increasing but bounded by 1 / b.
    "Ib": lambda alpha, b: PNPVariant(lambda r: (b * r - torch.log1p(b * r)) / b**2, lambda r: r / (1 + b * r)),
    # Eq. 12: decreasing slowly.
    "Ds": lambda alpha, b: PNPVariant(torch.log1p, lambda r: 1 / (1 + r)),
    # Eq. 13: decreasing quickly.
    "Dq": lambda alpha, b: PNPVariant(lambda r: 1 - (1 + r) ** -alpha, lambda r: alpha * (1 + r) ** (-alpha - 1)),
}


def pnp(
    similarity: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    variant: PNPVariant,
    temperature: float,
    own: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return mean_q mean_{i in P_q} variant(R_i) over the queries that have positives (Eqs. 5 to 13).

    R_i softly counts the negatives before positive i (Eq. 2). Shapes: similarity and both masks (Q, N); ``own`` (Q,)
    is each query's similarity to itself, if it should count as a positive.
    """

    def evaluate(ranks: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        slope = variant.derivative(ranks)
        return variant.value(ranks), slope, slope

    losses = ranking_loss(similarity, positive, negative, Penalty(evaluate, False), temperature, own)
    return losses.sum() / positive.any(dim=1).sum().clamp(min=1)


@register("loss", "pnp")
class PNPLoss(RankingLoss):
    """PNP loss (Li et al., AAAI 2022, "Rethinking the optimization of average precision").

    For each positive of each query, it softly counts the negatives ranked before it and penalises the count R:

        O: R     Iu: (1 + R) log(1 + R)     Ib: (b R - log(1 + b R)) / b^2     Ds: log(1 + R)     Dq: 1 - (1 + R)^-alpha

    D variants give a positive far down the list little weight, so a class may keep several centres and wrong labels
    do less harm; I variants do the opposite. Iu is Eq. 7 as printed, whose derivative at R = 0 is 1.
    ``variant`` is one of these names, or the result of ``make_variant`` for your own function.

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar, the mean over queries with a positive.
    Embeddings are normalised unless ``normalize=False``. ``include_self`` makes each query its own positive, as the
    authors' code does. ``ref_emb`` and ``ref_labels`` are a memory to rank instead of the batch.

    Use Dq with batches of 4 images per class; the larger the batch, the better. Smooth-AP also counts the positives
    before a positive; for classes of two images it equals Dq with alpha = 1.

    >>> loss = PNPLoss("Dq", alpha=4)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        variant: Annotated[
            Literal["O", "Iu", "Ib", "Ds", "Dq"] | PNPVariant,
            Doc("How each further negative is penalised: equally (O), increasingly (I) or decreasingly (D)."),
        ] = "Dq",
        alpha: Annotated[Positive, Doc("How fast Dq decreases.")] = 4.0,
        b: Annotated[Positive, Doc("Where Ib levels off.")] = 2.0,
        temperature: Annotated[Positive, Doc("Softness of the counts.")] = 0.01,
        include_self: Annotated[bool, Doc("A query is its own positive, as in the authors' code.")] = False,
        normalize: OnUnitVectors = True,
    ) -> None:
        super().__init__(normalize)
        self.variant = variant
        self.alpha = alpha
        self.b = b
        self.temperature = temperature
        self.include_self = include_self

    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the mean over queries that have a positive."""
        variant = VARIANTS[self.variant](self.alpha, self.b) if isinstance(self.variant, str) else self.variant
        x, y, positive, negative = given
        own = (x * x).sum(dim=1) if self.include_self else None
        return pnp(similarity_matrix(x, y), positive, negative, variant, self.temperature, own)
