"""Cosine similarities of queries and gallery, strip by strip within a memory budget.

The last bits of a float32 product depend on the shape that the BLAS library is given. So every product here has the
same shape, ROW_TILE queries by COLUMN_TILE items, padded with zeros at the ends. A pair's score is then the same for
every memory budget, and whichever of the two is the query.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from tophit.evaluation.inputs import MEMORY_BUDGET, Array, as_vectors, check_labelled, encode_labels, unit_rows
from tophit.evaluation.relevance import Mark, Relevance

# Multiples of the widths of BLAS kernels (4 to 48): another kernel computes a remainder, adds in another order, and
# gives equal vectors unequal scores. 2048 is not a multiple of 12, which float64 on AVX2 needs.
ROW_TILE = 576
COLUMN_TILE = 1152


@dataclass(frozen=True)
class SearchTask:
    """Vectors and integer classes of queries (Q) and gallery items (M), and each query's own item or -1 (Q).

    ``relevance`` says what is relevant to a query where that is not the items of its class.
    """

    queries: torch.Tensor
    query_classes: np.ndarray
    items: torch.Tensor
    item_classes: np.ndarray
    own_items: np.ndarray
    relevance: Relevance | None = None

    def __post_init__(self) -> None:
        check_labelled(self.queries, self.query_classes)
        check_labelled(self.items, self.item_classes, "gallery items")
        if self.queries.shape[1] != self.items.shape[1]:
            raise ValueError(
                f"embeddings have {self.queries.shape[1]} dimensions, the gallery {self.items.shape[1]}; "
                "both must come from the same embedder"
            )
        own = self.own_items
        if own.shape != (len(self.queries),) or own.min() < -1 or own.max() >= len(self.items):
            raise ValueError(
                f"own_items must give each of the {len(self.queries)} queries a gallery index below {len(self.items)}, "
                "or -1 for none"
            )
        if self.relevance is not None and self.relevance.shape != (len(self.queries), len(self.items)):
            raise ValueError(
                f"relevance has shape {self.relevance.shape}, but there are {len(self.queries)} queries and "
                f"{len(self.items)} items"
            )

    def is_right(self, query: int) -> np.ndarray:
        """Return which items (M,) are right for a query; its own item may be among them."""
        if self.relevance is not None:
            return self.relevance.is_right(query)
        return self.item_classes == self.query_classes[query]

    def marks(self, query: int, items: np.ndarray) -> list[Mark]:
        """Return what each of some items is to a query."""
        right = self.is_right(query)[items]
        near = np.zeros_like(right) if self.relevance is None else self.relevance.is_near(query)[items]
        return ["right" if one else "near" if other else "wrong" for one, other in zip(right, near, strict=True)]

    def of_queries(self, chosen: np.ndarray) -> "SearchTask":
        """Return the same search by some of the queries, given by their numbers."""
        return replace(
            self,
            queries=self.queries[torch.from_numpy(chosen)],
            query_classes=self.query_classes[chosen],
            own_items=self.own_items[chosen],
            relevance=None if self.relevance is None else self.relevance.of_queries(chosen),
        )

    @property
    def one_set(self) -> bool:
        """Whether every item queries all others."""
        return self.queries is self.items and np.array_equal(self.own_items, np.arange(len(self.items)))

    @property
    def score_type(self) -> torch.dtype:
        """The type of the scores: float64 if any vectors are, else float32."""
        return torch.float64 if torch.float64 in (self.queries.dtype, self.items.dtype) else torch.float32


def search_task(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    own_items: Array | None = None,
    relevance: Relevance | None = None,
) -> SearchTask:
    """Check the inputs and return the task: queries that search a gallery or, without one, each other."""
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("gallery and gallery_labels belong together: give both or neither")
    queries = as_vectors(embeddings)
    if gallery is None or gallery_labels is None:
        if own_items is not None:
            raise ValueError("own_items are indices into the gallery; without a gallery leave them out")
        (classes,) = encode_labels(labels)
        return SearchTask(queries, classes, queries, classes, np.arange(len(queries)), relevance)
    query_classes, item_classes = encode_labels(labels, gallery_labels)
    own = np.full(len(queries), -1) if own_items is None else np.asarray(own_items).astype(np.int64)
    return SearchTask(queries, query_classes, as_vectors(gallery, "gallery"), item_classes, own, relevance)


def unit_tile(rows: torch.Tensor, tile: int, dtype: torch.dtype) -> torch.Tensor:
    """Return rows (n, d) of length 1, padded with zero rows to (tile, d)."""
    padded = torch.zeros(tile, rows.shape[1], dtype=dtype)
    padded[: len(rows)] = unit_rows(rows)
    return padded


class UnitTiles:
    """Rows of length 1 in tiles of a fixed number of rows, the last one padded with zero rows.

    ``order`` (N,) rearranges the rows; ``keep`` makes all tiles at once.
    """

    def __init__(
        self, rows: torch.Tensor, tile: int, dtype: torch.dtype, keep: bool = False, order: np.ndarray | None = None
    ) -> None:
        self.rows, self.tile, self.dtype = rows, tile, dtype
        self.order = None if order is None else torch.from_numpy(order)
        self.count = -(-len(rows) // tile)
        self.kept = [self._make(i) for i in range(self.count)] if keep else None

    def __getitem__(self, number: int) -> torch.Tensor:
        return self.kept[number] if self.kept is not None else self._make(number)

    def _make(self, number: int) -> torch.Tensor:
        part = slice(number * self.tile, (number + 1) * self.tile)
        rows = self.rows[part] if self.order is None else self.rows[self.order[part]]
        return unit_tile(rows, self.tile, self.dtype)


def copy_fits(task: SearchTask, memory_budget: int) -> bool:
    """Say whether the unit vectors of all items fit into a quarter of the budget."""
    return (len(task.items) + COLUMN_TILE) * task.items.shape[1] * task.score_type.itemsize <= memory_budget // 4


class ScoreStrips:
    """The similarity matrix of a task in strips of ROW_TILE queries by as many items as the budget allows.

    A strip spans all items if it fits into half of the budget; else the items come in several spans, each computed on
    request. A query's own item scores -inf.
    """

    def __init__(self, task: SearchTask, memory_budget: int = MEMORY_BUDGET) -> None:
        self.task = task
        dtype = task.score_type
        size = dtype.itemsize
        tiles_in_strip = max(1, memory_budget // 2 // (ROW_TILE * COLUMN_TILE * size))
        self._queries = UnitTiles(task.queries, ROW_TILE, dtype)
        self._items = UnitTiles(task.items, COLUMN_TILE, dtype, keep=copy_fits(task, memory_budget))
        self.span = COLUMN_TILE * min(tiles_in_strip, self._items.count)
        self._buffer = torch.empty(ROW_TILE, self.span, dtype=dtype)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Begin and end of each span of items; one span if all items fit."""
        count = len(self.task.items)
        return [(start, min(start + self.span, count)) for start in range(0, count, self.span)]

    @property
    def strips(self) -> list[tuple[int, int]]:
        """Begin and end of each strip of queries."""
        count = len(self.task.queries)
        return [(start, min(start + ROW_TILE, count)) for start in range(0, count, ROW_TILE)]

    def scores(self, strip: tuple[int, int], span: tuple[int, int]) -> np.ndarray:
        """Return the similarities (queries of the strip, items of the span). The next call overwrites them."""
        queries = self._queries[strip[0] // ROW_TILE]
        first = span[0] // COLUMN_TILE
        for number in range(first, -(-span[1] // COLUMN_TILE)):
            start = (number - first) * COLUMN_TILE
            torch.mm(queries, self._items[number].T, out=self._buffer[:, start : start + COLUMN_TILE])
        scores = self._buffer.numpy()[: strip[1] - strip[0], : span[1] - span[0]]
        own = self.task.own_items[slice(*strip)]
        inside = np.flatnonzero((own >= span[0]) & (own < span[1]))
        scores[inside, own[inside] - span[0]] = -np.inf
        return scores
