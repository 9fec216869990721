"""Precision-recall and ROC curves over all pairs, from counts of pairs by score.

A pair is a query and a gallery item, or two items of one set. It is positive if the labels are the same, and accepted
if the cosine similarity reaches a threshold. Pairs are counted in bins of a given width and never all kept in memory.
"""

from dataclasses import dataclass

import numpy as np

from tophit.evaluation.inputs import MEMORY_BUDGET, Array
from tophit.evaluation.relevance import Relevance
from tophit.evaluation.scores import ScoreStrips, search_task

_MOST_EXACT_PAIRS = 20_000_000


@dataclass(frozen=True)
class PairCurves:
    """Numbers of pairs accepted at each threshold, from high to low; the curves are their ratios.

    ``thresholds`` (T,) decrease; ``true_accepted`` and ``false_accepted`` (T,) count positive and negative pairs whose
    similarity is at least the threshold. The last threshold accepts every pair. Counts at a threshold are exact;
    ``resolution`` is the step between thresholds, 0 if every score that occurs is one.
    """

    thresholds: np.ndarray
    true_accepted: np.ndarray
    false_accepted: np.ndarray
    resolution: float

    @property
    def recall(self) -> np.ndarray:
        """Share of the positive pairs that are accepted (T,); the true positive rate of ROC."""
        return _share(self.true_accepted, self.true_accepted[-1])

    @property
    def false_positive_rate(self) -> np.ndarray:
        """Share of the negative pairs that are accepted (T,)."""
        return _share(self.false_accepted, self.false_accepted[-1])

    @property
    def precision(self) -> np.ndarray:
        """Share of the accepted pairs that are positive (T,)."""
        return _share(self.true_accepted, self.true_accepted + self.false_accepted)

    @property
    def roc_auc(self) -> float:
        """Area under ROC: how often a positive pair scores above a negative one; ties and equal bins count half."""
        x = np.concatenate([[0.0], self.false_positive_rate])
        y = np.concatenate([[0.0], self.recall])
        return float(np.trapezoid(y, x))

    @property
    def average_precision(self) -> float:
        """Sum over thresholds of the precision times the increase in recall, over all pairs."""
        gain = np.diff(self.recall, prepend=0.0)
        return float((gain * self.precision)[gain > 0].sum()) if self.true_accepted[-1] else float("nan")


def pair_curves(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    own_items: Array | None = None,
    *,
    relevance: Relevance | None = None,
    bits: int | None = 12,
    memory_budget: int = MEMORY_BUDGET,
) -> PairCurves:
    """Return the precision-recall and ROC curves over all pairs.

    Thresholds are 2**-bits apart: 12 gives 8,193 of them. ``bits=None`` uses every score as a threshold, which keeps
    all pairs in memory and is limited to 20 million. Without a gallery each pair of two items counts once. With
    ``relevance`` a pair is positive if the item is right for the query.
    """
    task = search_task(embeddings, labels, gallery, gallery_labels, own_items, relevance)
    pairs = len(task.queries) * len(task.items)
    if bits is None and pairs > _MOST_EXACT_PAIRS:
        raise ValueError(
            f"{pairs} pairs are too many for bits=None (at most {_MOST_EXACT_PAIRS}); give bits such as 16"
        )
    if bits is not None and not 1 <= bits <= 20:
        raise ValueError(f"bits must be 1 to 20 or None, not {bits}")
    once = gallery is None
    counter = _ExactCounter() if bits is None else _BinCounter(bits)
    strips = ScoreStrips(task, memory_budget)
    for strip in strips.strips:
        for span in strips.spans:
            scores = strips.scores(strip, span)
            for row in range(len(scores)):
                query = strip[0] + row
                begin = max(0, query + 1 - span[0]) if once else 0  # earlier pairs were counted from the other side
                same = task.is_right(query)[span[0] + begin : span[1]]
                counter.add(scores[row, begin:], same)
    return counter.curves()


class _BinCounter:
    """Counts scores in bins of 2**-bits; as the scale is a power of two, rounding moves no score to another bin."""

    def __init__(self, bits: int) -> None:
        self.scale = 2**bits
        self.counts = np.zeros((2, 2 * self.scale + 1), np.int64)

    def add(self, scores: np.ndarray, same: np.ndarray) -> None:
        kept = np.isfinite(scores)
        bins = np.floor(scores[kept] * scores.dtype.type(self.scale)).astype(np.int64) + self.scale
        np.clip(bins, 0, 2 * self.scale, out=bins)  # by rounding, equal vectors can have a similarity above 1
        for kind, chosen in enumerate((same[kept], ~same[kept])):
            self.counts[kind] += np.bincount(bins[chosen], minlength=2 * self.scale + 1)

    def curves(self) -> PairCurves:
        true, false = np.cumsum(self.counts[:, ::-1], axis=1)
        thresholds = np.arange(self.scale, -self.scale - 1, -1) / self.scale
        return PairCurves(thresholds, true, false, 1 / self.scale)


class _ExactCounter:
    """Keeps every score and its kind."""

    def __init__(self) -> None:
        self.scores: list[np.ndarray] = []
        self.same: list[np.ndarray] = []

    def add(self, scores: np.ndarray, same: np.ndarray) -> None:
        kept = np.isfinite(scores)
        self.scores.append(scores[kept])
        self.same.append(same[kept])

    def curves(self) -> PairCurves:
        scores, same = np.concatenate(self.scores), np.concatenate(self.same)
        order = np.argsort(-scores, kind="stable")
        scores, same = scores[order], same[order]
        last = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1) if len(scores) else np.zeros(0, np.int64)
        return PairCurves(scores[last], np.cumsum(same)[last], np.cumsum(~same)[last], 0.0)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole, NaN where whole is 0."""
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=np.broadcast_to(whole, part.shape) > 0)
