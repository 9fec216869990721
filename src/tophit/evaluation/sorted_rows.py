"""Ranks of many relevant items at once: a row of scores is sorted as whole numbers that carry index and grade along.

A float32 score, the item's index and its grade fit into 64 bits, in this order. Sorted, they are the ranking with ties
by index, and the places whose grade is not 0 are the ranks. Where relevant items are few, counting them is faster.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from tophit.evaluation.relevant import Group

_GRADE_BITS = 8
_MOST_ITEMS = 2 ** (31 - _GRADE_BITS)
_FEW = 33  # relevant items per query; sorting a row costs as much as so many comparisons with it


def pays_to_sort(scores: np.ndarray, group: Group) -> bool:
    """Say whether the rows' keys fit into 64 bits, and whether there are enough relevant items to sort for."""
    if group.grades is None or scores.dtype != np.float32 or scores.shape[1] >= _MOST_ITEMS:
        return False
    many = len(group.items) > _FEW * (len(group.starts) - 1)
    return many and bool(
        (group.grades < 2**_GRADE_BITS).all() and (group.grades == group.grades.astype(np.uint8)).all()
    )


def ranks_by_sorting(scores: np.ndarray, group: Group, threads: ThreadPoolExecutor) -> tuple[np.ndarray, np.ndarray]:
    """Return ranks and grades (items,) of a group's relevant items, query by query, ascending within each.

    ``scores`` (queries, M) are those of the group's queries.
    """
    assert group.grades is not None
    grades = group.grades.astype(np.uint8)
    ranks, ranked = np.empty(len(group.items), np.int64), np.empty(len(group.items), np.uint8)
    indices = np.arange(scores.shape[1], dtype=np.int32) << _GRADE_BITS

    def work(rows: range) -> None:
        keys = np.empty(scores.shape[1], np.int64)
        low, high = keys.view(np.int32).reshape(-1, 2).T if _LITTLE else keys.view(np.int32).reshape(-1, 2).T[::-1]
        for row in rows:
            part = slice(group.starts[row], group.starts[row + 1])
            high[:] = _descending(scores[row])
            low[:] = indices
            low[group.items[part]] |= grades[part]
            keys.sort()
            found = (keys & (2**_GRADE_BITS - 1)).astype(np.uint8)
            places = np.flatnonzero(found)
            ranks[part] = places + 1
            ranked[part] = found[places]

    step = max(1, -(-len(scores) // (4 * torch.get_num_threads())))
    list(threads.map(work, [range(i, min(i + step, len(scores))) for i in range(0, len(scores), step)]))
    return ranks, ranked


_LITTLE = np.little_endian


def _descending(scores: np.ndarray) -> np.ndarray:
    """Return integers (n,) whose order is the reverse of that of float32 scores (n,); -0 is 0."""
    bits = (scores + np.float32(0)).view(np.int32)
    return ~(bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF)))
