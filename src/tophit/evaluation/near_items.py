"""The nearest neighbours of every row of one set, from products of whole numbers and exact scores of the best few.

Rows are rounded to whole numbers of -127 to 127, so their products are exact integers on every machine. A processor
with instructions for bytes computes them up to three times as fast as float32; any other gets the same integers from
float32, which is exact for them. Which is faster is measured on the first rows, so speed never changes the result.
``python -m benchmarks.evaluation clustering`` shows what this saves.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

_LARGEST = 127
_EXACT = 2**24  # float32 has all whole numbers up to this one
_FOLD = 16  # columns that are first reduced to their maximum; the largest maxima lead to the largest scores
_STRIP = 576  # rows at a time
_SCORES_AT_ONCE = 2**26  # 256 MB
_SPARE = 2  # candidates whose exact scores are computed, per neighbour that is wanted


def near_items(rows: np.ndarray, count: int) -> np.ndarray:
    """Return the ``count`` nearest other rows (N, count) of each unit row (N, d), nearest first.

    A neighbour can be missed where rounding moves it behind ``count`` others; those found are in their exact order.
    """
    vectors = torch.from_numpy(rows)
    count = min(count, len(rows) - 1)
    if count < 1:
        return np.empty((len(rows), 0), np.int64)
    fold = _FOLD if len(rows) > _FOLD * _SPARE * count else 1
    whole = _whole_numbers(vectors, fold)
    step = max(1, min(_STRIP, _SCORES_AT_ONCE // len(whole)))
    multiply = _faster_product(whole, step)
    found = [
        _nearest_of_strip(multiply(slice(start, min(start + step, len(rows)))), start, vectors, fold, count)
        for start in range(0, len(rows), step)
    ]
    return torch.cat(found).numpy()


def _whole_numbers(vectors: torch.Tensor, fold: int) -> torch.Tensor:
    """Return the vectors (N, d) as bytes, padded with rows of zeros to a multiple of ``fold``."""
    # A product is at most the square of the scale, as the vectors have length 1.
    scale = min(_LARGEST / max(float(vectors.abs().max()), 1e-30), _EXACT**0.5 / 2)
    whole = torch.zeros(-(-len(vectors) // fold) * fold, vectors.shape[1], dtype=torch.int8)
    for start in range(0, len(vectors), 4096):
        part = vectors[start : start + 4096]
        whole[start : start + len(part)] = (part * scale).round().to(torch.int8)
    return whole


def _faster_product(whole: torch.Tensor, step: int) -> Callable[[slice], torch.Tensor]:
    """Return the faster way to multiply some rows with all: as bytes, or the same numbers as float32."""
    multiply = torch._int_mm  # pyright: ignore[reportPrivateImportUsage]  # the only product of bytes that torch has
    small, floats = whole[: 16 * step], whole[: 16 * step].float()
    some = slice(0, step)
    ways = {"bytes": lambda: multiply(small[some], small.T), "floats": lambda: floats[some] @ floats.T}
    if min(ways, key=lambda name: _least_seconds(ways[name])) == "bytes":
        return lambda part: multiply(whole[part], whole.T)
    floats = whole.float()
    return lambda part: floats[part] @ floats.T


def _least_seconds(work: Callable[[], object], rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _nearest_of_strip(scores: torch.Tensor, first: int, vectors: torch.Tensor, fold: int, count: int) -> torch.Tensor:
    """Return the nearest (n, count) of rows ``first`` on, from their rounded scores with all (n, N or a few more)."""
    rows = torch.arange(len(scores))
    lowest = -_EXACT
    scores[rows, first + rows] = lowest
    scores[:, len(vectors) :] = lowest
    width = scores.shape[1] // fold
    wanted = min(_SPARE * count, len(vectors) - 1)
    columns = scores.view(len(scores), fold, width).amax(dim=1).topk(wanted, dim=1, sorted=False)[1]
    columns = (columns[:, :, None] + width * torch.arange(fold)).flatten(1)
    columns = columns.gather(1, scores.gather(1, columns).topk(wanted, dim=1, sorted=False)[1])
    exact = torch.bmm(vectors[columns.flatten()].view(*columns.shape, -1), vectors[first + rows, :, None])[:, :, 0]
    return columns.gather(1, exact.topk(count, dim=1)[1])
