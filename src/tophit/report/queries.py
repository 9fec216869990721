"""Which queries and class pairs a report shows: best, worst and random queries, and the classes most confused."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from tophit.evaluation.similarity import SearchTask


@dataclass(frozen=True)
class ChosenQueries:
    """Queries by their numbers: the best, worst and some random ones, each of different classes as far as possible."""

    best: list[int]
    worst: list[int]
    random: list[int]


def choose_queries(values: np.ndarray, classes: np.ndarray, count: int, seed: int = 0) -> ChosenQueries:
    """Choose by average precision (Q,), NaN for a query without a right answer; ``classes`` (Q,) are the queries'.

    Of equally good queries those of larger classes come first: they had more to find.
    """
    asked = np.flatnonzero(~np.isnan(values))
    sizes = np.bincount(classes)[classes]
    best = asked[np.lexsort((asked, -sizes[asked], -values[asked]))]
    shuffled = np.random.default_rng(seed).permutation(asked)
    return ChosenQueries(
        _of_different_classes(best, classes, count),
        _of_different_classes(worst_first(values), classes, count),
        _of_different_classes(shuffled, classes, count),
    )


def worst_first(values: np.ndarray) -> np.ndarray:
    """Return the numbers of the queries by rising value (Q,), equal ones in order, without those that are NaN."""
    order = np.argsort(values, kind="stable")
    return order[~np.isnan(values[order])]


def _of_different_classes(order: np.ndarray, classes: np.ndarray, count: int) -> list[int]:
    """Return the first queries of different classes; where there are too few classes, the next ones of any."""
    _, first = np.unique(classes[order], return_index=True)
    leading = np.sort(first)[:count]
    if len(leading) < count:
        others = np.setdiff1d(np.arange(len(order)), leading)[: count - len(leading)]
        leading = np.sort(np.concatenate([leading, others]))
    return order[leading].tolist()


@dataclass
class ConfusedPair:
    """Two classes taken for one another, that which is so more often first; ``examples`` are (query, nearest item)."""

    first: int
    second: int
    examples: list[tuple[int, int]] = field(default_factory=list)
    first_for_second: int = 0
    second_for_first: int = 0

    @property
    def queries(self) -> int:
        """How many queries of either class have an item of the other as their nearest."""
        return self.first_for_second + self.second_for_first


def confused_pairs(task: SearchTask, nearest: np.ndarray, most: int) -> list[ConfusedPair]:
    """Return the pairs of classes that most queries confuse; ``nearest`` (Q,) is each query's nearest item or -1."""
    asked, found = task.query_classes, task.item_classes[nearest]
    wrong = np.flatnonzero((nearest >= 0) & (asked != found))
    directed = Counter(zip(asked[wrong].tolist(), found[wrong].tolist(), strict=True))
    pairs: dict[tuple[int, int], ConfusedPair] = {}
    for one, two in directed:
        low, high = min(one, two), max(one, two)
        if (low, high) not in pairs:
            first, second = (low, high) if directed[low, high] >= directed[high, low] else (high, low)
            counts = directed[first, second], directed[second, first]
            pairs[low, high] = ConfusedPair(first, second, [], *counts)
    ranked = sorted(pairs.values(), key=lambda pair: (-pair.queries, pair.first, pair.second))[:most]
    wanted = {(pair.first, pair.second): pair for pair in ranked} | {(pair.second, pair.first): pair for pair in ranked}
    for query in wrong.tolist():
        pair = wanted.get((int(asked[query]), int(found[query])))
        if pair is not None:
            pair.examples.append((query, int(nearest[query])))
    return ranked
