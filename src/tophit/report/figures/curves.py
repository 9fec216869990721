"""Numbers of many steps as curves that can be seen: thinned, smoothed."""

import itertools

import numpy as np

_MOST_POINTS = 1500  # of a curve; a paper's column has 1,000 dots


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean (n,) of the ``window`` values around each one; fewer at the ends.

    >>> running_mean(np.array([0.0, 3.0, 6.0, 0.0]), 3).tolist()
    [1.5, 3.0, 3.0, 3.0]
    """
    half = window // 2
    sums = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    places = np.arange(len(values))
    first, last = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def window_of(steps: int) -> int:
    """Return an odd window of about a twentieth of the steps."""
    return max(1, steps // 20) | 1


def thinned(values: np.ndarray, most: int = _MOST_POINTS) -> np.ndarray:
    """Return places of values (n,) whose curve looks the same: the lowest and the highest of each stretch.

    >>> thinned(np.array([1.0, 5.0, 2.0, 0.0, 3.0, 3.0]), 4).tolist()
    [0, 1, 3, 4]
    """
    if len(values) <= most:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), most // 2 + 1).astype(int)
    kept: list[int] = []
    for start, end in itertools.pairwise(edges.tolist()):
        part = values[start:end]
        kept.extend(sorted({start + int(part.argmin()), start + int(part.argmax())}))
    return np.asarray(kept)


def spaced(x: np.ndarray, y: np.ndarray, gap: float = 0.002) -> np.ndarray:
    """Return places of a curve within the unit square whose neighbours are about ``gap`` apart, with both ends."""
    length = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))])
    cells = np.floor(length / gap)
    kept = np.flatnonzero(np.diff(cells, prepend=-1.0) > 0)
    return np.union1d(kept, [len(x) - 1])
