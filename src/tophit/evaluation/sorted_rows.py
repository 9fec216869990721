"""Ranks of many relevant items at once: a row of scores is sorted as whole numbers that carry index and grade along.

A float32 score, the item's index and its grade fit into 64 bits, in this order. Sorted, they are the ranking with ties
by index, and the places whose grade is not 0 are the ranks. Where relevant items are few, counting them is faster.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from tophit.evaluation.relevant import Group

SHORT = 4000  # scores: so few are sorted at once in less time than it takes to start counting them row by row
_GRADE_BITS = 8
_MOST_ITEMS = 2 ** (31 - _GRADE_BITS)
_FEW = 33  # relevant items per query; sorting a row costs as much as so many comparisons with it
_CHUNK = 2**20  # bytes of keys that are sorted at once: they stay in a core's cache


def pays_to_sort(scores: np.ndarray, group: Group) -> bool:
    """Say whether the rows' keys fit into 64 bits, and whether sorting takes less time than counting."""
    if scores.dtype != np.float32 or scores.shape[1] >= _MOST_ITEMS or not len(group.items):
        return False
    if group.grades is None:
        return scores.shape[1] < SHORT
    many = len(group.items) > _FEW * (len(group.starts) - 1)
    return many and bool(
        (group.grades < 2**_GRADE_BITS).all() and (group.grades == group.grades.astype(np.uint8)).all()
    )


def ranks_by_sorting(
    scores: np.ndarray, group: Group, threads: ThreadPoolExecutor
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return ranks and grades (items,) of a group's relevant items, query by query, ascending within each.

    ``scores`` (queries, M) are those of the group's queries. Without grades in the group there are none.
    """
    count = scores.shape[1]
    grades = np.ones(len(group.items), np.uint8) if group.grades is None else group.grades.astype(np.uint8)
    ranks, ranked = np.empty(len(group.items), np.int64), np.empty(len(group.items), np.uint8)
    indices, owners = np.arange(count, dtype=np.int32) << _GRADE_BITS, group.owners

    def work(rows: range) -> None:
        part = slice(group.starts[rows.start], group.starts[rows.stop])
        keys = np.empty((len(rows), count), np.int64)
        halves = keys.view(np.int32).reshape(*keys.shape, 2)
        low, high = (halves[..., 0], halves[..., 1]) if _LITTLE else (halves[..., 1], halves[..., 0])
        high[:] = _descending(scores[rows.start : rows.stop])
        low[:] = indices
        low[owners[part] - rows.start, group.items[part]] |= grades[part]
        keys.sort(axis=1)
        found = keys.astype(np.uint8)  # the lowest bits, the grade
        of_rows, places = found.nonzero()
        ranks[part] = places + 1
        ranked[part] = found[of_rows, places]

    step = max(1, min(_CHUNK // (8 * count), -(-len(scores) // torch.get_num_threads())))
    list(threads.map(work, [range(i, min(i + step, len(scores))) for i in range(0, len(scores), step)]))
    return ranks, None if group.grades is None else ranked


_LITTLE = np.little_endian


def _descending(scores: np.ndarray) -> np.ndarray:
    """Return integers whose order is the reverse of that of float32 scores, in the same shape; -0 is 0."""
    bits = (scores + np.float32(0)).view(np.int32)
    return ~(bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF)))
