"""What a ranked list says about the chance that a result, or the label it has, is right.

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
"""Results that vote for a label."""
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


def class_features(scores: np.ndarray, labels: np.ndarray, items: int, per_class: float) -> np.ndarray:
    """Return what is known about the label of each result: (Q, D, 6), the same for all results of a label.

    They are its best score, how far that is above the background and above the best of another label, its share of the
    votes, and the logarithms of the number of classes and of a class's size.
    """
    level, first = background(scores), first_of_label(labels)
    own = np.take_along_axis(scores, first, 1)
    differs = (labels != labels[:, :1]) & np.isfinite(scores)
    second = np.where(differs.any(axis=1), scores[np.arange(len(scores)), differs.argmax(axis=1)], level[:, 0])
    other = np.where(labels == labels[:, :1], second[:, None], scores[:, :1])
    columns = [own, own - level, own - other, vote_shares(scores, labels)]
    columns += [np.log(max(1.0, items / per_class)), np.log(per_class)]
    return np.nan_to_num(np.stack(np.broadcast_arrays(*columns), axis=2))


def vote_shares(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the share (Q, D) of the votes for the label of each result; the first ten labelled results vote.

    A vote weighs the fourth power of how far its score is above the background, so that a class of three items is not
    outvoted by a large one that is farther away.
    """
    some, names = scores[:, :VOTERS], labels[:, :VOTERS]
    above = np.maximum(np.nan_to_num(some - background(scores)), _LEAST_VOTE)
    weights = np.where(np.isfinite(some) & (names >= 0), above**_SHARPNESS, 0.0)
    sums = np.einsum("qv,qdv->qd", weights, labels[:, :, None] == names[:, None, :])
    return sums / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)


def first_of_label(labels: np.ndarray) -> np.ndarray:
    """Return the place (Q, D), from 0, of the first result with the label of each result (Q, D)."""
    rows, depth = labels.shape
    keys = np.arange(rows)[:, None] * (labels.max(initial=-1) + 2) + labels + 1
    _, first, same = np.unique(keys, return_index=True, return_inverse=True)
    return (first % depth)[same].reshape(rows, depth) if depth else np.zeros((rows, 0), int)
