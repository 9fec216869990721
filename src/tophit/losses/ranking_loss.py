"""What the ranking losses have in common: queries and their candidates, which are positives, full precision."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch.nn import functional

from tophit.losses.label_sets import are_sets, share_a_label
from tophit.losses.loss import Loss

IndicesTuple = tuple[torch.Tensor, ...]


class Candidates(NamedTuple):
    """Q queries, N candidates, and two masks (Q, N): no pair is in both, and a query is in neither for itself."""

    queries: torch.Tensor  # (Q, d), float32 or float64
    candidates: torch.Tensor  # (N, d), the same tensor as queries when a batch ranks itself
    positive: torch.Tensor  # (Q, N) bool
    negative: torch.Tensor  # (Q, N) bool


class RankingLoss(Loss, ABC):
    """A loss of how each query ranks its candidates; a subclass's equation is in ``compute``."""

    takes_memory = True
    takes_sets = True

    def __init__(self, normalize: bool) -> None:
        super().__init__()
        self.normalize = normalize

    @abstractmethod
    def compute(self, given: Candidates) -> torch.Tensor:
        """Return the loss, a scalar, of queries and their candidates."""

    def forward(
        self,
        embeddings: torch.Tensor,
        labels: torch.Tensor,
        indices_tuple: IndicesTuple | None = None,
        ref_emb: torch.Tensor | None = None,
        ref_labels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the loss of embeddings (N, d) with labels (N,), in float32 at least."""
        with torch.autocast(embeddings.device.type, enabled=False):
            arguments = (embeddings, labels, indices_tuple, ref_emb, ref_labels)
            return self.compute(find_candidates(*arguments, self.normalize))


def find_candidates(
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    indices_tuple: IndicesTuple | None = None,
    ref_emb: torch.Tensor | None = None,
    ref_labels: torch.Tensor | None = None,
    normalize: bool = True,
) -> Candidates:
    """Return the queries and their candidates: each row of ``embeddings`` (Q, d) is a query.

    Candidates are the other rows, or, with ``ref_emb`` (N, d) and ``ref_labels`` (N,), the rows of that memory.
    ``labels`` (Q,) are any integers; or several for each image (Q, K), padded with -1, of which a positive shares one;
    or a boolean matrix (Q, N) that says which pairs are positive.
    ``indices_tuple`` keeps only its pairs, in the forms of pytorch-metric-learning: (anchors, positives, anchors,
    negatives) or (anchors, positives, negatives).
    Half-precision embeddings become float32, because a temperature magnifies rounding errors.
    """
    own_batch = ref_emb is None or ref_emb is embeddings
    others = embeddings if ref_emb is None else ref_emb
    _check_embeddings(embeddings, others)
    same = _same(labels, labels if own_batch and ref_labels is None else ref_labels, len(embeddings), len(others))
    positive = same.to(embeddings.device)
    negative = ~positive
    if own_batch:
        positive = positive.clone() if positive is same else positive
        positive.fill_diagonal_(False)
        negative.fill_diagonal_(False)
    if indices_tuple is not None:
        positive, negative = _keep_pairs(positive, negative, indices_tuple)
    queries = _ready(embeddings, normalize)
    candidates = queries if own_batch else _ready(others, normalize).to(queries.dtype)
    return Candidates(queries, candidates, positive, negative)


def _ready(embeddings: torch.Tensor, normalize: bool) -> torch.Tensor:
    x = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
    return functional.normalize(x, dim=1) if normalize else x


def _check_embeddings(embeddings: torch.Tensor, others: torch.Tensor) -> None:
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise ValueError(f"embeddings must be floats of shape (N, d), got {embeddings.dtype} {tuple(embeddings.shape)}")
    if others.ndim != 2 or others.shape[1] != embeddings.shape[1]:
        raise ValueError(f"ref_emb must be (M, {embeddings.shape[1]}) like the embeddings, got {tuple(others.shape)}")


def _same(labels: torch.Tensor, ref_labels: torch.Tensor | None, queries: int, candidates: int) -> torch.Tensor:
    """Return the (Q, N) matrix of pairs with the same label, or with one of several in common."""
    if labels.ndim == 2 and labels.dtype == torch.bool:
        if labels.shape != (queries, candidates):
            raise ValueError(f"a matrix of labels must be ({queries}, {candidates}), got {tuple(labels.shape)}")
        return labels
    if ref_labels is None:
        raise ValueError("ref_emb needs ref_labels, one label for each of its rows")
    if are_sets(labels) and are_sets(ref_labels) and (len(labels), len(ref_labels)) == (queries, candidates):
        return share_a_label(labels, ref_labels.to(labels.device))
    for name, given, length in (("labels", labels, queries), ("ref_labels", ref_labels, candidates)):
        if given.shape != (length,):
            raise ValueError(f"{name} must be ({length},), one for each embedding, got {tuple(given.shape)}")
    return labels[:, None] == ref_labels.to(labels.device)[None, :]


def _keep_pairs(
    positive: torch.Tensor, negative: torch.Tensor, indices_tuple: IndicesTuple
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both masks restricted to the pairs of a tuple (a, p, a, n) or (a, p, n)."""
    if len(indices_tuple) == 3:
        anchors, positives, negatives = indices_tuple
        indices_tuple = (anchors, positives, anchors, negatives)
    if len(indices_tuple) != 4:
        raise ValueError(f"indices_tuple must be 3 tensors (a, p, n) or 4 (a, p, a, n), got {len(indices_tuple)}")
    kept = []
    for mask, rows, columns in ((positive, *indices_tuple[:2]), (negative, *indices_tuple[2:])):
        chosen = torch.zeros_like(mask)
        chosen[rows.to(mask.device), columns.to(mask.device)] = True
        kept.append(mask & chosen)
    return kept[0], kept[1]
