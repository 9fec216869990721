"""Ranks where every item of one set queries all others: the score of a pair serves both, so half the products suffice.

Items come in blocks of consecutive indices. Within a block they are sorted by their number of relevant items, largest
first, so that the queries that have an n-th relevant item are a slice. First the scores of all relevant items are
computed class by class. Then each pair of blocks is multiplied once and counted for the queries of both.
``python -m benchmarks.evaluation one-set`` shows what this saves.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from tophit.evaluation.relevant import RankedQueries, RelevantItems
from tophit.evaluation.scores import COLUMN_TILE, ROW_TILE, SearchTask, UnitTiles, copy_fits, unit_tile

BLOCK = COLUMN_TILE
# A comparison here costs more than in ``ranks``: as much as so many dimensions of a product save.
DIMENSIONS_PER_COMPARISON = 15
_MOST_SLOTS = 100  # relevant items per query; every query needs memory for as many as the largest class has
# NumPy copies broadcast operands into buffers if several rows fit into one. Without that, comparing is twice as fast.
_NO_BUFFERING = 512
_CHUNK = 192  # rows of a block counted at a time: few enough for the cache of a core and for sums that fit into bytes


class UnequalScoresError(Exception):
    """The BLAS library gives a pair different scores at different places of the product, so counts would be wrong."""


@dataclass
class _Block:
    """The queries ``indices`` (n,) of one block with their numbers of ``relevant`` items (n,), largest first.

    ``places``, ``thresholds`` and ``before`` (slots, n) are the index and the score of each relevant item, and how many
    items come before it. Slots beyond a query's number of relevant items are not used.
    """

    number: int
    indices: np.ndarray
    relevant: np.ndarray
    places: np.ndarray
    thresholds: np.ndarray

    def __post_init__(self) -> None:
        self.used = self.relevant > np.arange(len(self.places))[:, None]
        self.filled = self.used.sum(axis=1).tolist()
        self.homes = (self.places // BLOCK).astype(np.int32)  # the block of each relevant item
        self.just_below = np.nextafter(self.thresholds, self.thresholds.dtype.type(-np.inf))
        self.before = np.zeros(self.places.shape, np.int32)
        self.lock = threading.Lock()

    def add(self, found: np.ndarray) -> None:
        """Add to ``before``; several workers may do so at the same time."""
        with self.lock:
            self.before += found

    def limits(self, other: "_Block") -> np.ndarray:
        """Return the scores (slots, n) that another block's items must exceed to come before the relevant items.

        Of equal scores the lower index comes first. For relevant items in the other block itself the limits exclude
        equal scores, which ``_count_ties`` adds.
        """
        return np.where(self.homes > other.number, self.just_below, self.thresholds)

    def filled_in(self, part: slice) -> list[int]:
        """Return for each slot how many queries of a part of the block use it."""
        return self.used[:, part].sum(axis=1).tolist()

    def ranks(self) -> RankedQueries:
        """Return the ranks, with the queries in the order of their indices."""
        order = np.argsort(self.indices)
        counts = self.relevant[order]
        before = np.where(self.used, self.before, np.iinfo(np.int32).max).T[order]
        used = self.used.T[order]
        return RankedQueries(self.number * BLOCK, counts, np.sort(before, axis=1)[used].astype(np.int64) + 1)


def fits_one_set(task: SearchTask, relevant: RelevantItems, memory_budget: int) -> bool:
    """Say whether the task is one set with few relevant items per query, which all fit into the budget."""
    most = int(relevant.sizes.max()) - 1
    mean = float((relevant.sizes * (relevant.sizes - 1)).sum()) / len(task.items)
    slot = 3 * task.score_type.itemsize + 3 * np.dtype(np.int32).itemsize + 1  # bytes of a relevant item in a block
    few = most <= _MOST_SLOTS and DIMENSIONS_PER_COMPARISON * mean <= task.items.shape[1]
    return task.one_set and few and len(task.items) * most * slot <= memory_budget // 4


def ranks_in_one_set(task: SearchTask, relevant: RelevantItems, memory_budget: int) -> Iterator[RankedQueries]:
    """Yield the ranks of all relevant items by blocks of queries, after one pass over half of the products."""
    blocks = _make_blocks(task, relevant)
    order = np.concatenate([block.indices for block in blocks])
    tiles = UnitTiles(task.items, BLOCK, task.score_type, copy_fits(task, memory_budget), order)
    products = threading.local()

    def work(pair: tuple[_Block, _Block]) -> None:
        row, column = pair
        if not hasattr(products, "buffer"):
            products.buffer = torch.empty(BLOCK, BLOCK, dtype=task.score_type)
            np.setbufsize(_NO_BUFFERING)  # of this thread
        scores = _multiply(tiles[row.number], tiles[column.number], products.buffer)
        _count(scores[: len(row.indices), : len(column.indices)], row, column)

    with _single_threaded_workers() as workers:
        for _ in workers.map(work, ((row, column) for row in blocks for column in blocks[row.number :])):
            pass
    for block in blocks:
        yield block.ranks()


@contextmanager
def _single_threaded_workers() -> Iterator[ThreadPoolExecutor]:
    """Yield as many worker threads as torch has, and let torch use one thread in each.

    The threads of one parallel product keep their cores busy for a while after it, which slows down the work between
    products. Independent workers do not.
    """
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            yield workers
    finally:
        torch.set_num_threads(threads)  # a worker's setting would also apply to later threads


def _multiply(queries: torch.Tensor, items: torch.Tensor, out: torch.Tensor) -> np.ndarray:
    """Return the products (BLOCK, BLOCK) of two tiles, in the shape that all scores are computed in."""
    for start in range(0, BLOCK, ROW_TILE):
        torch.mm(queries[start : start + ROW_TILE], items.T, out=out[start : start + ROW_TILE])
    return out.numpy()


def _make_blocks(task: SearchTask, relevant: RelevantItems) -> list[_Block]:
    others = relevant.sizes[task.item_classes] - 1
    scores = _scores_in_classes(task, relevant)
    blocks = []
    for number, start in enumerate(range(0, len(others), BLOCK)):
        part = np.arange(start, min(start + BLOCK, len(others)))
        indices = part[np.argsort(-others[part], kind="stable")]
        slots = np.arange(others[indices].max())[:, None]
        sorted_places = np.minimum(relevant.other(indices, slots), len(others) - 1)
        thresholds = scores[: len(slots), relevant.place[indices]]
        places = relevant.by_class[sorted_places].astype(np.int32)
        blocks.append(_Block(number, indices, others[indices], places, thresholds))
    return blocks


def _scores_in_classes(task: SearchTask, relevant: RelevantItems) -> np.ndarray:
    """Return (slots, N) the scores of each item's relevant items, the items in the order of their classes."""
    slots = np.arange(relevant.sizes.max() - 1)[:, None]
    product = torch.empty(BLOCK, BLOCK, dtype=task.score_type)
    scores = np.zeros((len(slots), len(task.items)), product.numpy().dtype)
    for start, end in _whole_classes(relevant.starts):
        indices = relevant.by_class[start:end]
        tile = unit_tile(task.items[torch.from_numpy(indices)], BLOCK, task.score_type)
        found = _multiply(tile, tile.clone(), product)
        others = np.minimum(relevant.other(indices, slots) - start, BLOCK - 1)  # slots beyond a class are not used
        scores[:, start:end] = found[np.arange(end - start), others]
    return scores


def _whole_classes(starts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield parts of the items sorted by class: at most BLOCK items and only whole classes."""
    first = 0
    while first < starts[-1]:
        last = int(starts[np.searchsorted(starts, first + BLOCK, side="right") - 1])
        yield first, last
        first = last


def _count(scores: np.ndarray, row: _Block, column: _Block) -> None:
    """Count the scores (row's items, column's items) for the queries of both blocks, which may be the same block."""
    if row is column:
        np.fill_diagonal(scores, -np.inf)
    row_limits, column_limits = row.limits(column), column.limits(row)
    row_found, column_found = np.zeros_like(row.before), np.zeros_like(column.before)
    for start in range(0, len(scores), _CHUNK):
        part = slice(start, start + _CHUNK)
        row_found[:, part] = _count_along_rows(scores[part], row_limits[:, part], row.filled_in(part))
        if row is not column:
            column_found += _count_along_columns(scores[part], column_limits, column.filled)
    row.add(row_found + _count_ties(scores, row, column))
    if row is not column:
        column.add(column_found + _count_ties(scores.T, column, row))


def _count_along_rows(scores: np.ndarray, limits: np.ndarray, filled: list[int]) -> np.ndarray:
    """Return how many scores of each row (n, m) exceed each of the row's limits (slots, n)."""
    flags = np.zeros((len(scores), BLOCK), np.bool_)
    flags_in_words = flags.view(np.uint64)
    words = np.zeros(limits.shape, np.uint64)  # eight sums each, all below 256
    for slot, rows in enumerate(filled):
        np.greater(scores[:rows], limits[slot, :rows, None], out=flags[:rows, : scores.shape[1]])
        np.add.reduce(flags_in_words[:rows], axis=1, out=words[slot, :rows])
    return words.view(np.uint8).reshape(*limits.shape, 8).sum(axis=2, dtype=np.int32)


def _count_along_columns(scores: np.ndarray, limits: np.ndarray, filled: list[int]) -> np.ndarray:
    """Return how many scores of each column (n, m) exceed each of the column's limits (slots, m); n is below 256."""
    flags = np.empty(scores.shape, np.bool_)
    found = np.zeros(limits.shape, np.uint8)
    for slot, columns in enumerate(filled):
        np.greater(scores[:, :columns], limits[slot, :columns], out=flags[:, :columns])
        np.add.reduce(flags[:, :columns].view(np.uint8), axis=0, out=found[slot, :columns])
    return found


def _count_ties(scores: np.ndarray, queries: _Block, items: _Block) -> np.ndarray:
    """Return how many items have an equal score and a lower index than relevant items in their own block (slots, n)."""
    found = np.zeros_like(queries.before)
    all_slots, all_rows = np.nonzero((queries.homes == items.number) & queries.used)
    for start in range(0, len(all_rows), BLOCK):
        slots, rows = all_slots[start : start + BLOCK], all_rows[start : start + BLOCK]
        equal = scores[rows] == queries.thresholds[slots, rows, None]
        if not equal.any(axis=1).all():
            raise UnequalScoresError
        found[slots, rows] = (equal & (items.indices < queries.places[slots, rows, None])).sum(axis=1)
    return found
