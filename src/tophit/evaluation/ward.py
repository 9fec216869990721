"""Ward's grouping along near neighbours: repeatedly join the two groups whose union adds least to the inertia.

Only groups that contain near neighbours of each other can be joined. Each round joins all pairs of groups that are each
other's cheapest partner. As a join never makes a third group cheaper to join, this gives the same tree as one join at
a time. The cheapest joins of the tree are the result.
"""

import numpy as np

_ROUNDS = 100  # about 15 are usual; a limit for sets where everything is near one item
_EDGES_AT_ONCE = 8192


def ward_groups(
    rows: np.ndarray, weights: np.ndarray, first: np.ndarray, second: np.ndarray, target: int
) -> np.ndarray:
    """Return each row's group (N,): rows (N, d) of weights (N,) joined along pairs until ``target`` groups are left.

    More groups are left if there are too few pairs (first, second).
    """
    tree = _Tree(rows, weights, first, second)
    for _ in range(_ROUNDS):
        if not len(tree.cost) or tree.joins_below_any_edge() >= len(rows) - target:
            break
        tree.join_cheapest_partners()
    return tree.groups(len(rows) - target)


class _Tree:
    """Groups, numbered by one of their rows, with sums (N, d), sizes (N,), edges between them and the joins so far."""

    def __init__(self, rows: np.ndarray, weights: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
        self.count = len(rows)
        self.sums = (rows * weights[:, None]).astype(np.float32)
        self.sizes = weights.astype(np.float32)
        self.squares = np.einsum("nd,nd->n", self.sums, self.sums)
        self.cost = np.empty(0, np.float32)
        self.joins: list[np.ndarray] = []  # (3, joins) of each round: cost, group that stays, group that goes
        self._set_edges(np.minimum(first, second), np.maximum(first, second))

    def joins_below_any_edge(self) -> int:
        """Return how many joins are cheaper than all that can follow."""
        return sum(int((joins[0] <= self.cost.min()).sum()) for joins in self.joins)

    def join_cheapest_partners(self) -> None:
        """Join all pairs of groups that are each other's cheapest partner; of equal costs the first edge is cheaper."""
        rank = np.empty(len(self.cost), np.int64)
        rank[np.argsort(self.cost, kind="stable")] = np.arange(len(self.cost))
        cheapest = np.full(self.count, len(rank))
        np.minimum.at(cheapest, self.low, rank)
        np.minimum.at(cheapest, self.high, rank)
        mutual = (cheapest[self.low] == rank) & (cheapest[self.high] == rank)
        stay, go = self.low[mutual], self.high[mutual]
        self.joins.append(np.stack([self.cost[mutual], stay, go]))
        self.sums[stay] += self.sums[go]
        self.sizes[stay] += self.sizes[go]
        self.squares[stay] = np.einsum("nd,nd->n", self.sums[stay], self.sums[stay])
        into, changed = np.arange(self.count), np.zeros(self.count, np.bool_)
        into[go], changed[stay] = stay, True
        self._set_edges(into[self.low], into[self.high], changed)

    def groups(self, most: int) -> np.ndarray:
        """Return the groups (N,), numbered from 0, after the ``most`` cheapest joins."""
        joins = np.concatenate([np.empty((3, 0)), *self.joins], axis=1)
        parent = np.arange(self.count)
        # The joins inside a group are cheaper than its join with another, so a group is complete when it is joined.
        for _, stay, go in joins[:, np.argsort(joins[0], kind="stable")[:most]].T:
            parent[int(go)] = int(stay)
        while (parent != parent[parent]).any():
            parent = parent[parent]
        return np.unique(parent, return_inverse=True)[1]

    def _set_edges(self, one: np.ndarray, other: np.ndarray, changed: np.ndarray | None = None) -> None:
        """Store the edges between groups, each once; compute the costs of new ones and at ``changed`` (N,) groups."""
        low, high = np.minimum(one, other), np.maximum(one, other)
        names, places = np.unique(np.where(low != high, low * self.count + high, -1), return_index=True)
        names, places = names[names >= 0], places[names >= 0]
        self.low, self.high = names // self.count, names % self.count
        if changed is None:
            self.cost, stale = np.empty(len(names), np.float32), np.arange(len(names))
        else:
            self.cost, stale = self.cost[places], np.flatnonzero(changed[self.low] | changed[self.high])
        for start in range(0, len(stale), _EDGES_AT_ONCE):
            part = stale[start : start + _EDGES_AT_ONCE]
            self.cost[part] = self._costs(self.low[part], self.high[part])

    def _costs(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return how much a join adds to the inertia: n_a n_b / (n_a + n_b) times the squared distance of the means."""
        products = np.einsum("nd,nd->n", self.sums[a], self.sums[b])
        sizes_a, sizes_b = self.sizes[a], self.sizes[b]
        distances = self.squares[a] / sizes_a**2 + self.squares[b] / sizes_b**2 - 2 * products / (sizes_a * sizes_b)
        return sizes_a * sizes_b / (sizes_a + sizes_b) * distances.clip(min=0)
