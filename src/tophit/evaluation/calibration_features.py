"""What a ranked list says about the chance that a result, or a name, is right.

The score alone says little: 0.6 is near for one query and far for another. So it is compared with the query's own
background, the scores well below its first results, as score normalisation does in speaker verification (S-norm). Ranks
make the background nearly independent of the size of the gallery: in an exponential tail, the number of wrong items
above a score follows from how far it is above the score at a fixed rank.
"""

from dataclasses import dataclass

import numpy as np

DEPTH = 100
"""Results of a query that are looked at; of fewer, the lower half is the background."""
_BACKGROUND_FROM = 50
VOTERS = 10
"""Results that vote for a name."""
_SHARPNESS = 4
_LEAST_VOTE = 1e-3


@dataclass(frozen=True)
class RankedLists:
    """The first results of queries (Q), best first, with what is known about them.

    ``scores`` (Q, D) end with NaN where there are fewer results; ``labels`` (Q, D) are the results' classes, -1 where
    there is none. ``classes`` (Q,) are the queries' own. ``known`` (Q,) says whether a query's class is in its gallery.
    The gallery has ``items``, on average ``per_class`` of a class.
    """

    scores: np.ndarray
    labels: np.ndarray
    classes: np.ndarray
    known: np.ndarray
    items: int
    per_class: float

    @property
    def right(self) -> np.ndarray:
        """Whether each result (Q, D) has the query's class."""
        return (self.labels == self.classes[:, None]) & self.known[:, None]


def background(scores: np.ndarray) -> np.ndarray:
    """Return the mean score (Q, 1) of the ranks 51 to 100, or of the lower half of a shorter list."""
    found = np.isfinite(scores).sum(axis=1, keepdims=True)
    start, end = np.minimum(_BACKGROUND_FROM, found // 2), np.minimum(DEPTH, found)
    place = np.arange(scores.shape[1])
    used = (place >= start) & (place < end)
    return np.where(used, np.nan_to_num(scores), 0).sum(axis=1, keepdims=True) / np.maximum(used.sum(1), 1)[:, None]


def result_features(scores: np.ndarray, items: int, per_class: float) -> np.ndarray:
    """Return what is known about each result: (Q, D, 7), zeros where there is none.

    They are the score, how far it is above the background, how far below the first result and above the next one, the
    logarithms of its rank among as many right ones as a class has, of the number of classes, and of the class's size.
    """
    level = background(scores)
    following = np.concatenate([scores[:, 1:], np.full((len(scores), 1), np.nan)], axis=1)
    following = np.where(np.isfinite(following), following, np.minimum(level, scores))
    rank = np.arange(1, scores.shape[1] + 1) / per_class
    columns = [scores, scores - level, scores[:, :1] - scores, scores - following, np.log(rank)]
    columns += [np.log(max(1.0, items / per_class)), np.log(per_class)]
    return np.nan_to_num(np.stack(np.broadcast_arrays(*columns), axis=2))


def votes(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the label (Q,) that the first results vote for, and its share (Q,) of the votes; -1 and 0 without results.

    A vote weighs the fourth power of how far its score is above the background, so that a class of three items is not
    outvoted by a large one that is farther away. Of labels with equal votes the one found first wins.
    """
    some, names = scores[:, :VOTERS], labels[:, :VOTERS]
    above = np.maximum(np.nan_to_num(some - background(scores)), _LEAST_VOTE)
    weights = np.where(np.isfinite(some), above**_SHARPNESS, 0.0)
    weights = np.where(names >= 0, weights, 0.0)
    sums = np.einsum("qj,qij->qi", weights, (names[:, :, None] == names[:, None, :]) & (names >= 0)[:, :, None])
    winner = sums.argmax(axis=1)[:, None]
    share = np.take_along_axis(sums, winner, 1)[:, 0] / np.maximum(weights.sum(axis=1), 1e-300)
    return np.where(share > 0, np.take_along_axis(names, winner, 1)[:, 0], -1), share


def name_features(scores: np.ndarray, labels: np.ndarray, items: int, per_class: float) -> np.ndarray:
    """Return what is known about the name that the first results vote for: (Q, 6), zeros without results.

    They are its best score, how far that is above the background and above the best of another name, its share of the
    votes, and the logarithms of the number of classes and of a class's size.
    """
    level = background(scores)[:, 0]
    name, share = votes(scores, labels)
    some, names = scores[:, :VOTERS], labels[:, :VOTERS]
    own = np.where((names == name[:, None]) & np.isfinite(some), some, -np.inf).max(axis=1, initial=-np.inf)
    other = np.where((names != name[:, None]) & np.isfinite(some), some, -np.inf).max(axis=1, initial=-np.inf)
    other = np.where(np.isfinite(other), other, level)
    own = np.where(np.isfinite(own), own, 0.0)
    columns = [own, own - level, own - other, share, np.log(max(1.0, items / per_class)), np.log(per_class)]
    return np.nan_to_num(np.stack(np.broadcast_arrays(*columns), axis=1))
