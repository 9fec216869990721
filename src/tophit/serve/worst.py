"""The worst queries of an index: items that find items of other labels before those of their own."""

from dataclasses import dataclass

import numpy as np

from tophit.evaluation import retrieval_metrics
from tophit.evaluation.worst import worst_queries
from tophit.search.index import Index

MOST_QUERIES = 5000
_SHOWN = 60
_RESULTS = 12


@dataclass(frozen=True)
class WorstQuery:
    """A query, its average precision, and what it found: ids, scores, and whether each is right."""

    id: str
    value: float
    first_right_rank: int
    results: list[tuple[str, float, bool]]


@dataclass(frozen=True)
class Worst:
    """The worst queries, worst first; how many were tried; labels taken for one another; means over queries."""

    tried: int
    queries: list[WorstQuery]
    confusions: list[tuple[str, str, int]]
    metrics: dict[str, float]


def find_worst(index: Index, most: int = MOST_QUERIES) -> Worst:
    """Let items search the rest of the index and return those with the least average precision.

    Of more than ``most`` items, as many are queries, at equal steps in the order of their ids. Items without a label
    neither ask nor are found.
    """
    chosen = [item for item in index.items() if item.metadata.get("label") not in (None, "")]
    if len(chosen) < 2:
        return Worst(0, [], [], {})
    ids = [item.id for item in chosen]
    vectors = np.stack([item.vector for item in chosen])
    labels = [str(item.metadata["label"]) for item in chosen]
    asking = np.arange(0, len(chosen), max(1, -(-len(chosen) // most)))
    given = (vectors[asking], [labels[i] for i in asking], vectors, labels)
    metrics = retrieval_metrics(*given, own_items=asking)
    found = worst_queries(metrics.per_query["mAP"], *given, asking, count=_SHOWN, results=_RESULTS)
    queries = [
        WorstQuery(
            ids[asking[one.query]],
            one.value,
            one.first_right_rank,
            [(ids[i], s, c) for i, s, c in zip(one.results, one.scores, one.correct, strict=True)],
        )
        for one in found.queries
    ]
    confusions = [(str(each.label), str(each.taken_for), each.queries) for each in found.confusions]
    return Worst(len(asking), queries, confusions, {k: float(v) for k, v in metrics.items() if np.isfinite(v)})
