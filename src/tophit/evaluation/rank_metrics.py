"""The retrieval metrics: each is a function of the ranks of a query's relevant items.

A metric is registered by name: ``@register("metric", "recall")`` makes ``recall@16``. A function with a parameter ``k``
needs a number after ``@``, others must not have one. A metric from outside is ``package.module:function`` or
``package.module:function@16``; the same function signature is all it needs. In a hierarchy a result is right if it
shares all levels with the query; ``level1-recall@1`` counts those that share the first, and so with any metric here.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tophit.errors import UsageError
from tophit.evaluation.relevant import RankedQueries
from tophit.registry import find_metric, metric_level, register


@register("metric", "recall")
def recall(found: RankedQueries, k: int) -> np.ndarray:
    """Return 1 if a relevant item is among the first k results (the hit rate), else 0."""
    return (found.among_first(k) > 0).astype(np.float64)


@register("metric", "precision")
def precision(found: RankedQueries, k: int) -> np.ndarray:
    """Return the share of the first k results that are relevant; k may exceed the gallery."""
    return found.among_first(k) / k


@register("metric", "ndcg")
def ndcg(found: RankedQueries, k: int) -> np.ndarray:
    """Return the discounted gains 1 / log2(rank + 1) of the first k results over those of the best order."""
    best = found.best_gains[np.minimum(found.counts, k)]
    return found.sum(found.gains * (found.ranks <= k)) / np.where(found.counts > 0, best, np.nan)


@register("metric", "MAP")
def map_at_k(found: RankedQueries, k: int) -> np.ndarray:
    """Return the precisions at the ranks of the relevant items among the first k results, summed and divided by k."""
    return found.sum(found.precisions * (found.ranks <= k)) / k


@register("metric", "mAP")
def average_precision(found: RankedQueries) -> np.ndarray:
    """Return the mean of the precisions at the ranks of all R relevant items."""
    return found.sum(found.precisions) / _count(found)


@register("metric", "MAP@R")
def map_at_r(found: RankedQueries) -> np.ndarray:
    """Return the precisions at the ranks of the relevant items among the first R results, summed and divided by R."""
    return found.sum(found.precisions * found.within_count) / _count(found)


@register("metric", "MAP@C")
def map_at_class_size(found: RankedQueries) -> np.ndarray:
    """Return what MAP@R does with R + 1 instead of R: the size of the class with the query (Roth et al., ICML 2020)."""
    size = found.counts + 1
    return found.sum(found.precisions * (found.ranks <= size[found.owners])) / np.where(found.counts > 0, size, np.nan)


@register("metric", "R-precision")
def r_precision(found: RankedQueries) -> np.ndarray:
    """Return the share of the first R results that are relevant, for a query with R relevant items."""
    return found.sum(found.within_count) / _count(found)


def _count(found: RankedQueries) -> np.ndarray:
    """Return R, the number of relevant items of each query (queries,); NaN for none."""
    return np.where(found.counts > 0, found.counts, np.nan)


@dataclass(frozen=True)
class Metric:
    """A metric by its full name, such as ``recall@16``; ``kind`` is the name without the number.

    ``graded`` metrics look at the grades of all relevant items, others only at the right ones; with ``level``, at those
    that share so many levels of a hierarchy with the query.
    """

    name: str
    kind: str
    k: int | None
    function: Callable[..., np.ndarray]
    graded: bool = False
    level: int | None = None

    def __call__(self, found: RankedQueries) -> np.ndarray:
        """Return its value for each query (queries,); NaN for a query without relevant items."""
        if not self.graded:
            found = found.right if self.level is None else found.from_level(self.level)
        values = np.asarray(self.function(found) if self.k is None else self.function(found, self.k), np.float64)
        if values.shape != found.counts.shape or not np.isfinite(values[found.counts > 0]).all():
            raise UsageError(
                f"The metric {self.name} must return one finite number per query with relevant items, in an array of "
                f"shape {found.counts.shape}; its array has shape {values.shape}."
            )
        return np.where(found.counts > 0, values, np.nan)


def parse_metric(name: str) -> Metric:
    """Return the metric of a name such as ``recall@16``, ``mAP`` or ``package.module:function``; errors say what fits.

    >>> parse_metric("recall@16").k
    16
    """
    entry, k = find_metric(name)
    return Metric(name, entry.name, k, entry.load(), bool(entry.facts.get("graded")), metric_level(name)[0])
