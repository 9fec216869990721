"""A stateful property test of a backend against a dictionary; any backend that can be made empty can run it."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tophit.search import Hit, Index

DIM = 4
IDS = st.sampled_from([*"abcdefgh", "é", "a b", "x" * 200])
VALUES = st.sampled_from([0, 1, 2.5, True, False, "x", "y", "", None])
FIELDS = st.dictionaries(st.sampled_from(["kind", "size", "na'me"]), VALUES, max_size=3)
VECTORS = st.tuples(*[st.integers(-3, 3)] * DIM).filter(any)
BATCH = st.lists(st.tuples(IDS, VECTORS, FIELDS), min_size=1, max_size=6)
FILTERS = st.one_of(
    st.fixed_dictionaries({"kind": st.sampled_from([0, 1, True, "x", ""])}),
    st.fixed_dictionaries({"kind": st.lists(st.sampled_from([0, 1, "x", True, 2.5]), min_size=1, max_size=3)}),
    st.fixed_dictionaries({"size": st.fixed_dictionaries({"ne": st.sampled_from([1, "x", False])})}),
    st.fixed_dictionaries({"size": st.fixed_dictionaries({"gte": st.sampled_from([1, 2]), "lt": st.just(3)})}),
    st.fixed_dictionaries({"na'me": st.fixed_dictionaries({"gt": st.sampled_from(["", "x"])}), "kind": st.just(1)}),
)


def same(value: Any, wanted: Any) -> bool:
    """Say whether values are equal as filters see it: truth, numbers and texts are apart."""
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def meets(fields: dict[str, Any], where: dict[str, Any]) -> bool:
    """Say literally whether metadata meet a filter."""
    for field, wanted in where.items():
        value = fields.get(field)
        for operator, other in (wanted if isinstance(wanted, dict) else {"is": wanted}).items():
            if operator == "is":
                holds = any(same(value, one) for one in (other if isinstance(other, list) else [other]))
            elif operator == "ne":
                holds = not same(value, other)
            elif isinstance(other, str) != isinstance(value, str) or isinstance(value, bool) or value is None:
                holds = False
            else:
                holds = {"lt": value < other, "gte": value >= other, "gt": value > other}[operator]
            if not holds:
                return False
    return True


class IndexMachine(RuleBasedStateMachine):
    """Does to an index what it does to a dictionary, and compares. A subclass says how an empty index is made."""

    create: Callable[[], Index]
    reopen: Callable[[Index], Index] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.index = type(self).create()
        self.model: dict[str, tuple[np.ndarray, dict[str, Any]]] = {}

    @rule(batch=BATCH)
    def upsert(self, batch: list[tuple[str, tuple[int, ...], dict[str, Any]]]) -> None:
        ids, vectors, fields = zip(*batch, strict=True)
        self.index.upsert(ids, np.array(vectors, float), fields)
        for item_id, vector, values in batch:
            array = np.array(vector, float)
            self.model[item_id] = (array / np.linalg.norm(array), dict(values))

    @rule(ids=st.lists(IDS, min_size=1, max_size=4))
    def delete(self, ids: list[str]) -> None:
        assert self.index.delete(ids) == len(set(ids) & set(self.model))
        for one in ids:
            self.model.pop(one, None)

    @rule(query=VECTORS, k=st.integers(1, 12))
    def search(self, query: tuple[int, ...], k: int) -> None:
        self.compare(self.index.search(query, k)[0], query, k, {})

    @rule(queries=st.lists(VECTORS, min_size=1, max_size=3), k=st.integers(1, 12), where=FILTERS)
    def search_filtered(self, queries: list[tuple[int, ...]], k: int, where: dict[str, Any]) -> None:
        for query, hits in zip(queries, self.index.search(queries, k, where), strict=True):
            self.compare(hits, query, k, where)
        assert self.index.count(where) == sum(meets(fields, where) for _, fields in self.model.values())

    @rule(ids=st.lists(IDS, min_size=1, max_size=4))
    def get(self, ids: list[str]) -> None:
        for one, item in zip(ids, self.index.get(ids), strict=True):
            assert (item is None) == (one not in self.model)
            if item is not None:
                assert item.metadata == self.model[one][1]
                assert np.allclose(item.vector, self.model[one][0], atol=1e-6)

    @rule()
    def compact(self) -> None:
        self.index.compact()

    @precondition(lambda self: type(self).reopen is not None)
    @rule()
    def open_again(self) -> None:
        reopen = type(self).reopen
        assert reopen is not None
        self.index = reopen(self.index)

    @invariant()
    def has_the_same_items(self) -> None:
        assert len(self.index) == len(self.model)
        assert [item.id for item in self.index.items()] == sorted(self.model)

    def compare(self, hits: list[Hit], query: tuple[int, ...], k: int, where: dict[str, Any]) -> None:
        """Check hits against all allowed items, ordered by score and then by id."""
        unit = np.array(query, float) / np.linalg.norm(query)
        scores = {one: float(vector @ unit) for one, (vector, fields) in self.model.items() if meets(fields, where)}
        # Scores that differ by less than float32 can tell are equal.
        expected = sorted(scores, key=lambda one: (-round(scores[one], 5), one))[:k]
        assert [hit.rank for hit in hits] == list(range(1, len(expected) + 1))
        assert np.allclose([hit.score for hit in hits], [scores[one] for one in expected], atol=2e-6)
        for hit in hits:
            assert abs(scores[hit.id] - hit.score) < 2e-6
            assert hit.metadata == self.model[hit.id][1]
        exact = [(hit.score, hit.id) for hit in hits]
        assert exact == sorted(exact, key=lambda one: (-one[0], one[1]))

    def teardown(self) -> None:
        self.index.close()
