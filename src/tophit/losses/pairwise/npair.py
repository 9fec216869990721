"""N-pair and angular loss: an anchor and its positive against the positives of the other classes."""

import math
from typing import Annotated, NamedTuple

import torch

from tophit.losses.loss import eager
from tophit.losses.pairwise.pair_loss import Pair, PairLoss, Tuples, mean_or_zero
from tophit.losses.ranking_loss import Candidates
from tophit.losses.similarity import similarity_matrix
from tophit.options import AtLeastZero, Doc, OnUnitVectors
from tophit.registry import register


class Tuplets(NamedTuple):
    """P positive pairs, each with its negatives: anchors (P,), positives (P,), and a mask (P, M) of the candidates."""

    anchors: torch.Tensor
    positives: torch.Tensor
    negatives: torch.Tensor


@eager
def find_tuplets(tuples: Tuples) -> Tuplets:
    """Return the chosen positive pairs with their negatives.

    The negatives of a pair are the positives of the chosen pairs of other classes, each once: with one pair per class
    this is the N-pair batch. If negatives are chosen too, by triplets or negative pairs, only those are used. Without
    a choice, the images of each class are paired in the order of the batch: first with second, third with fourth.
    """
    batch, pairs, triplets = tuples
    if triplets is not None:
        a, p, n = triplets
        (a, p), group = torch.stack([a, p]).unique(dim=1, return_inverse=True)
        negatives = torch.zeros(len(a), len(batch.candidates), dtype=torch.bool, device=a.device)
        negatives[group, n] = True
        return Tuplets(a, p, negatives & batch.negative[a])
    if pairs is None:
        if batch.candidates is not batch.queries:
            raise ValueError("with ref_emb, this loss needs pairs, triplets or an indices_tuple")
        pairs = _paired_off(batch.positive)
    is_positive = batch.positive[pairs]
    a, p = pairs[0][is_positive], pairs[1][is_positive]
    is_negative = batch.negative[pairs]
    if bool(is_negative.any()):
        chosen = torch.zeros_like(batch.negative)
        chosen[pairs[0][is_negative], pairs[1][is_negative]] = True
        return Tuplets(a, p, chosen[a])
    other_positives = torch.zeros(len(batch.candidates), dtype=torch.bool, device=a.device).index_fill_(0, p, True)
    return Tuplets(a, p, batch.negative[a] & other_positives)


def _paired_off(positive: torch.Tensor) -> Pair:
    """Return first with second, third with fourth of each class, from the symmetric mask (N, N) of positives."""
    place = positive.tril(diagonal=-1).sum(dim=1)  # how many images of its class come before it
    partner = positive & (place[:, None] % 2 == 0) & (place[None, :] == place[:, None] + 1)
    anchors, positives = partner.nonzero(as_tuple=True)
    return anchors, positives


def log_one_plus_sum_exp(exponents: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Return log(1 + sum exp(x)) over the entries of each row that ``where`` selects; both are (P, M)."""
    chosen = exponents.masked_fill(~where, -math.inf)
    return torch.cat([exponents.new_zeros(len(exponents), 1), chosen], dim=1).logsumexp(dim=1)


def npair(batch: Candidates, tuplets: Tuplets) -> torch.Tensor:
    """Return log(1 + sum_n exp(a . n - a . p)) of each pair (P,) (Sohn, NIPS 2016)."""
    a, p = batch.queries[tuplets.anchors], batch.candidates[tuplets.positives]
    exponents = similarity_matrix(a, batch.candidates) - (a * p).sum(dim=1, keepdim=True)
    return log_one_plus_sum_exp(exponents, tuplets.negatives)


def angular(batch: Candidates, tuplets: Tuplets, alpha: float) -> torch.Tensor:
    """Return log(1 + sum_n exp(4 t (a + p) . n - 2 (1 + t) a . p)) of each pair (P,), t = tan^2 of alpha degrees."""
    t = math.tan(math.radians(alpha)) ** 2
    a, p = batch.queries[tuplets.anchors], batch.candidates[tuplets.positives]
    exponents = 4 * t * similarity_matrix(a + p, batch.candidates) - 2 * (1 + t) * (a * p).sum(dim=1, keepdim=True)
    return log_one_plus_sum_exp(exponents, tuplets.negatives)


class TupletLoss(PairLoss):
    """A pair loss whose pairs have many negatives each; negatives from other batches are not part of its definition.

    Nor are several labels for each image: it pairs off the images of each class, and then classes would overlap.
    """

    takes_memory = False
    takes_sets = False
    restriction = "positives"

    def of_triplets(self, x: torch.Tensor, labels: torch.Tensor, triplets: torch.Tensor) -> torch.Tensor:
        """Return the loss of the triplets' pairs, each with the other-class negatives of all triplets."""
        return self(x, labels, many_negatives(labels, triplets))


def many_negatives(labels: torch.Tensor, triplets: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the pairs of triplets (3, T), and each anchor with all negatives: (a, p, anchors, negatives)."""
    a, p, n = triplets
    n = n.unique()
    rows, columns = (labels[a][:, None] != labels[n][None, :]).nonzero(as_tuple=True)
    return a, p, a[rows], n[columns]


@register("loss", "n-pair")
class NPairLoss(TupletLoss):
    """N-pair loss (Sohn, NIPS 2016): a softmax over the positives of the batch, one per class.

        mean over pairs of  log(1 + sum_{j != i} exp(a_i . p_j - a_i . p_i))

    Shapes: embeddings (N, d), labels (N,) any integers; returns a scalar. ``pairs=(anchors, positives)`` choose the
    pairs; ``triplets=(a, p, n)`` also choose the negatives, and those with the same (a, p) are one term of the mean.
    Without them the images of each class are paired in the order of the batch. Embeddings are not normalised,
    as in the paper, unless ``normalize=True``; ``norm_penalty`` times their mean squared length is added.

    Use it with batches of many classes with two images each. In a projection the representatives are the positives. On
    unit vectors its exponents span only 4, so it keeps pushing pairs that are already right.

    >>> loss = NPairLoss()
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        norm_penalty: Annotated[AtLeastZero, Doc("Weight of the mean squared length of the vectors.")] = 0.0,
        normalize: Annotated[OnUnitVectors, Doc("Normalise embeddings to unit length; the paper does not.")] = False,
    ) -> None:
        super().__init__(normalize)
        self.norm_penalty = norm_penalty

    def compute(self, tuples: Tuples) -> torch.Tensor:
        """Return the mean of the equation."""
        x = tuples.batch.queries
        tuplets = find_tuplets(tuples)
        self._used = tuplets.negatives.sum()
        loss = mean_or_zero(npair(tuples.batch, tuplets), x)
        if self.norm_penalty:
            loss = loss + self.norm_penalty * x.square().sum() / max(1, len(x))
        return loss


@register("loss", "angular")
class AngularLoss(TupletLoss):
    """Angular loss (Wang et al., ICCV 2017), in its N-pair form: the angle at the negative is at most alpha.

        mean over pairs of  log(1 + sum_{j != i} exp(4 t (a_i + p_i) . p_j - 2 (1 + t) a_i . p_i)),  t = tan^2(alpha)

    ``alpha`` is in degrees. Shapes, ``pairs``, ``triplets`` and their defaults are those of ``NPairLoss``; embeddings
    are not normalised unless ``normalize=True``.

    Use it like ``NPairLoss``, with two images per class. It compares angles, which do not change with scale.

    >>> loss = AngularLoss(alpha=45.0)
    >>> loss(torch.randn(8, 4), torch.tensor([0, 0, 1, 1, 2, 2, 0, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        alpha: Annotated[float, Doc("Largest angle at a negative, in degrees.", gt=0, lt=90)] = 45.0,
        normalize: Annotated[OnUnitVectors, Doc("Normalise embeddings to unit length; the paper does not.")] = False,
    ) -> None:
        super().__init__(normalize)
        self.alpha = alpha

    def compute(self, tuples: Tuples) -> torch.Tensor:
        """Return the mean of the equation."""
        tuplets = find_tuplets(tuples)
        self._used = tuplets.negatives.sum()
        return mean_or_zero(angular(tuples.batch, tuplets, self.alpha), tuples.batch.queries)
