"""One contract for all backends: what an index promises holds on a folder, on Milvus and on PostgreSQL alike."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.search.servers import Place

from tophit.errors import TophitError, UsageError
from tophit.search import Hit
from tophit.search.filters import Condition, parse_filter

DIM = 8


def vectors_of(count: int, seed: int = 0, dim: int = DIM) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def brute_force(items: dict[str, tuple[np.ndarray, dict[str, Any]]], query: np.ndarray, k: int) -> list[str]:
    """Return the ids of the k nearest, scores rounded so that last bits do not decide; equal ones by id."""
    scored = [(-round(float(vector.astype(np.float64) @ query), 6), name) for name, (vector, _) in items.items()]
    return [name for _, name in sorted(scored)[:k]]


def meets(metadata: dict[str, Any], condition: Condition) -> bool:
    """Say literally whether an item meets a condition."""
    value, wanted = metadata.get(condition.field), condition.value
    if condition.operator == "in":
        return any(same(value, each) for each in wanted)
    if condition.operator in ("eq", "ne"):
        return same(value, wanted) == (condition.operator == "eq")
    if kind(value) != kind(wanted):
        return False
    signs = {"lt": value < wanted, "lte": value <= wanted, "gt": value > wanted, "gte": value >= wanted}
    return signs[condition.operator]


def kind(value: object) -> str:
    if isinstance(value, bool):
        return "truth"
    return "text" if isinstance(value, str) else "number" if isinstance(value, int | float) else "other"


def same(value: object, wanted: object) -> bool:
    return kind(value) == kind(wanted) and value == wanted


def ids_of(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


def test_what_was_written_is_found_and_read_back(place: Place) -> None:
    vectors = vectors_of(40)
    ids = [f"bild {i} \"ä\\'" for i in range(40)]
    metadata = [{"n": i, "tags": ["a", {"b": None}], "text": 'line\n"two"', "x": i / 7} for i in range(40)]
    with place.create() as index:
        index.upsert(ids, vectors, metadata)
        assert len(index) == 40
        hits = index.search(vectors[7], k=3)[0]
        assert (hits[0].id, hits[0].rank, hits[0].metadata) == (ids[7], 1, metadata[7])
        assert hits[0].score == pytest.approx(1, abs=1e-5)
        found = index.get([ids[3], "nothing", ids[2]])
        assert found[1] is None
        assert found[0] is not None
        assert found[0].metadata == metadata[3]
        np.testing.assert_allclose(found[0].vector, vectors[3], atol=1e-6)
        everything = list(index.items(batch=7))
        assert [item.id for item in everything] == sorted(ids)
        assert index.search(vectors[:2], k=2, with_metadata=False)[1][0].id == ids[1]


def test_upsert_replaces_and_may_be_repeated(place: Place) -> None:
    vectors = vectors_of(6)
    with place.create() as index:
        for _ in range(3):
            index.upsert(["a", "b", "c"], vectors[:3], [{"v": 1}] * 3)
        index.upsert(["b"], vectors[5:6], [{"w": 2}])
        assert len(index) == 3
        assert ids_of(index.search(vectors[5], k=1)[0]) == ["b"]
        assert index.search(vectors[5], k=1)[0][0].metadata == {"w": 2}
        assert index.search(vectors[1], k=3)[0][0].score < 0.999  # the old vector of b is gone
        assert index.count({"v": 1}) == 2


def test_delete_says_how_many_were_there(place: Place) -> None:
    vectors = vectors_of(5)
    with place.create() as index:
        index.upsert(list("abcde"), vectors)
        assert index.delete(["b", "nothing", "d"]) == 2
        assert index.delete(["b"]) == 0
        assert len(index) == 3
        assert set(ids_of(index.search(vectors[1], k=10)[0])) == {"a", "c", "e"}
        index.upsert(["b"], vectors[1:2])
        assert ids_of(index.search(vectors[1], k=1)[0]) == ["b"]


def test_every_write_is_seen_by_the_next_read_of_any_client(place: Place) -> None:
    vectors = vectors_of(30)
    with place.create() as index:
        for i, vector in enumerate(vectors):
            index.upsert([str(i)], vector[None])
            assert ids_of(index.search(vector, k=1)[0]) == [str(i)]
            assert len(index) == i + 1
            if i % 10 == 0 and place.backend != "local":  # a local index has one writer; readers take a snapshot
                with place.open() as other:
                    assert ids_of(other.search(vector, k=1)[0]) == [str(i)]
            if i % 3 == 0:
                index.delete([str(i)])
                assert index.get([str(i)]) == [None]
                index.upsert([str(i)], vector[None])


FILTERS: list[dict[str, Any]] = [
    {"label": "cat"},
    {"label": {"ne": "cat"}},
    {"label": ["cat", "bird"]},
    {"price": {"lt": 3}},
    {"price": {"lte": 3, "gt": 0.5}},
    {"price": {"gte": 2.5}},
    {"price": 3},
    {"price": 3.0},
    {"price": {"ne": 3}},
    {"label": {"lt": "cat"}},
    {"label": {"gte": "cát"}},
    {"sold": True},
    {"sold": {"ne": True}},
    {"sold": 1},
    {"mixed": 1},
    {"mixed": "1"},
    {"mixed": True},
    {"mixed": [1, "1"]},
    {"mixed": {"ne": 1}},
    {"mixed": {"gt": 0}},
    {"mixed": {"gt": "0"}},
    {"rare": {"ne": 5}},
    {"rare": 5},
    {"nowhere": 1},
    {"nowhere": {"ne": 1}},
    {'odd "name\\': "x'y\""},
    {"tags": "a"},
    {"label": "cat", "price": {"lt": 3}, "sold": {"ne": False}},
]


def filter_items() -> dict[str, tuple[np.ndarray, dict[str, Any]]]:
    """Items with missing fields, fields of several types, and texts that need escaping."""
    mixed = [1, "1", True, 1.0, None, [1], False, 2]
    items: dict[str, tuple[np.ndarray, dict[str, Any]]] = {}
    for i, vector in enumerate(vectors_of(120, seed=3)):
        fields: dict[str, Any] = {"label": ["cat", "dog", "bird", "cát"][i % 4], "price": [0, 0.5, 2.5, 3, 10][i % 5]}
        fields |= {"sold": i % 3 == 0, "mixed": mixed[i % 8], "tags": ["a", "b"]}
        if i % 7 == 0:
            fields["rare"] = 5 + i % 2
        if i % 11 == 0:
            fields['odd "name\\'] = "x'y\""
        items[f"item {i:03}"] = (vector, fields)
    return items


def test_filters_mean_the_same_everywhere(place: Place) -> None:
    items = filter_items()
    query = vectors_of(1, seed=9)[0]
    with place.create() as index:
        index.upsert(list(items), np.stack([v for v, _ in items.values()]), [m for _, m in items.values()])
        for where in FILTERS:
            allowed = {
                name: item for name, item in items.items() if all(meets(item[1], c) for c in parse_filter(where))
            }
            assert index.count(where) == len(allowed), where
            assert ids_of(index.search(query, k=20, where=where)[0]) == brute_force(allowed, query, 20), where


def test_one_of_several_labels(place: Place) -> None:
    labels = {"a": ["red", "shoe"], "b": ["red", 'a "hat"'], "c": ["blue", "shoe"]}
    several = [{"label": ";".join(each), "label_kind": "several", "labels": each} for each in labels.values()]
    with place.create() as index:
        index.upsert([*labels, "one"], vectors_of(4), [*several, {"label": "red"}])

        def found(where: dict[str, Any]) -> str:
            names = sorted(ids_of(index.search(vectors_of(1, seed=9)[0], k=9, where=where)[0]))
            assert index.count(where) == len(names)
            return " ".join(names)

        assert found({"labels": "red"}) == "a b"
        assert found({"labels": ['a "hat"', "blue"]}) == "b c"
        assert found({"labels": {"ne": "shoe"}}) == "b one"
        assert found({"labels": "shoe", "label": "red;shoe"}) == "a"
        assert found({"labels": "re"}) == ""
        index.upsert(["a"], vectors_of(1), [{"label": "red"}])
        assert found({"labels": "red"}) == "b"


def test_results_are_those_of_brute_force_also_after_churn(place: Place) -> None:
    random = np.random.default_rng(1)
    kept: dict[str, tuple[np.ndarray, dict[str, Any]]] = {}
    with place.create() as index:
        for step in range(6):
            names = [str(n) for n in random.choice(300, 120, replace=False)]
            rows = vectors_of(120, seed=step + 10)
            index.upsert(names, rows, [{"step": step}] * 120)
            kept |= {name: (row, {"step": step}) for name, row in zip(names, rows, strict=True)}
            gone = [str(n) for n in random.choice(300, 30, replace=False)]
            assert index.delete(gone) == len([name for name in gone if name in kept])
            kept = {name: item for name, item in kept.items() if name not in gone}
            if step == 3:
                index.compact()
            queries = vectors_of(5, seed=step + 50)
            for query, hits in zip(queries, index.search(queries, k=15), strict=True):
                assert ids_of(hits) == brute_force(kept, query, 15)
                expected = [float(kept[hit.id][0] @ query) for hit in hits]
                assert [hit.score for hit in hits] == pytest.approx(expected, abs=2e-6)
                assert [hit.rank for hit in hits] == list(range(1, 16))
        assert {item.id: item.metadata for item in index.items()} == {name: m for name, (_, m) in kept.items()}


def test_equal_scores_come_in_the_order_of_ids(place: Place) -> None:
    vectors = np.repeat(vectors_of(2), [70, 30], axis=0)
    ids = [f"{i:03}" for i in np.random.default_rng(0).permutation(100)]
    with place.create() as index:
        index.upsert(ids, vectors)
        expected = sorted(ids[:70])
        assert ids_of(index.search(vectors[0], k=10)[0]) == expected[:10]
        assert ids_of(index.search(vectors[0], k=65)[0]) == expected[:65]
        assert ids_of(index.search(vectors[0], k=100)[0]) == expected + sorted(ids[70:])


def test_recall_of_a_larger_index_is_one_where_search_is_exact(place: Place) -> None:
    vectors, queries = vectors_of(3000, seed=2, dim=32), vectors_of(20, seed=4, dim=32)
    with place.create(dim=32) as index:
        for start in range(0, 3000, 1000):
            ids = [str(i) for i in range(start, start + 1000)]
            index.upsert(ids, vectors[start : start + 1000], [{"even": i % 2 == 0} for i in range(start, start + 1000)])
        nearest = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
        found = index.search(queries, k=10)
        recall = np.mean([len(set(ids_of(h)) & {str(i) for i in n}) / 10 for h, n in zip(found, nearest, strict=True)])
        assert recall == 1
        even = np.argsort(-(queries @ vectors[::2].T), axis=1)[:, :10] * 2
        found = index.search(queries, k=10, where={"even": True})
        assert [{*ids_of(hits)} for hits in found] == [{str(i) for i in row} for row in even]


def test_an_index_remembers_its_embedder_and_dimension(place: Place) -> None:
    with place.create(dim=5, fingerprint="model A") as index:
        index.upsert(["x"], vectors_of(1, dim=5))
        with pytest.raises(TophitError, match=r"holds vectors of 5 numbers"):
            index.upsert(["y"], vectors_of(1, dim=6))
    with place.open("model A") as index:
        assert (index.dim, index.fingerprint, len(index)) == (5, "model A", 1)
        stats = index.stats()
        assert (stats["count"], stats["dim"], stats["fingerprint"]) == (1, 5, "model A")
    with pytest.raises(TophitError, match=r"made by another embedder"):
        place.open("model B")
    with pytest.raises(TophitError, match=r"already"):
        place.create()


def test_what_is_not_there_gets_a_sentence(place: Place) -> None:
    with pytest.raises(TophitError, match=r"There is no index"):
        place.open()


def test_the_longest_id_and_an_empty_index(place: Place) -> None:
    long = "é" * 512  # 1024 bytes
    with place.create() as index:
        assert index.search(vectors_of(2), k=3) == [[], []]
        assert (len(index), index.delete(["x"]), list(index.items())) == (0, 0, [])
        index.upsert([long], vectors_of(1))
        assert index.get([long])[0] is not None
        assert index.delete([long]) == 1
        with pytest.raises(UsageError, match=r"at most 1024 bytes"):
            index.upsert([long + "x"], vectors_of(1))


WRITER = """
    import sys
    import numpy as np
    from tests.search.servers import Place
    backend, location, name, start = sys.argv[1:]
    index = Place(backend, location, name).open()
    n = int(start)
    while True:
        rows = np.random.default_rng(n).normal(size=(4, 8))
        index.upsert([f"{n}-{i}" for i in range(4)], rows, [{"n": n}] * 4)
        print(n, flush=True)
        n += 1
"""


def acknowledged_before_kill(place: Place, start: int, seconds: float) -> int:
    """Run a writer from batch ``start`` on, kill -9 it, and return its last acknowledged batch."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(WRITER)]
    process = subprocess.Popen(
        [*command, place.backend, place.location, place.name, str(start)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": "src:."},
    )
    with process:
        assert process.stdout is not None
        first = process.stdout.readline()  # it writes now
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
    assert first, "the writer failed before its first write"
    return int(rest[-1] if rest else first)


def test_a_killed_writer_and_server_lose_nothing_acknowledged(place: Place) -> None:
    place.create().close()
    start = 0
    for seconds in (0.15, 0.4):
        last = acknowledged_before_kill(place, start, seconds)
        place.kill_server()
        with place.open() as index:
            items = {item.id: item for item in index.items()}
            assert len(items) == len(index)
            for n in range(last + 1):
                rows = np.random.default_rng(n).normal(size=(4, 8))
                rows /= np.linalg.norm(rows, axis=1, keepdims=True)
                for i in range(4):
                    np.testing.assert_allclose(items[f"{n}-{i}"].vector, rows[i], atol=1e-6)
            beyond = {int(name.split("-")[0]) for name in items} - set(range(last + 1))
            assert beyond <= {last + 1}  # at most the batch under way when it was killed
            assert all(f"{n}-{i}" in items for n in beyond for i in range(4))  # and that one whole
            query = items["0-2"].vector
            assert index.search(query, k=1)[0][0].id == "0-2"
        start = last + 1


def test_a_list_of_many_values_and_what_is_no_value(place: Place) -> None:
    names = [f"{i:03}" for i in range(40)]
    metadata = [{"n": i, "word": f"w{i}", "x": None, "even": i % 2 == 0} for i in range(40)]
    with place.create() as index:
        index.upsert(names, np.random.default_rng(0).normal(size=(40, 8)), metadata)
        assert index.get(["003"])[0].metadata == metadata[3]
        assert index.count({"n": [*range(10, 900), "11", True]}) == 30
        assert index.count({"n": [3, 4.0, "w5"], "even": [True]}) == 1
        assert index.count({"word": [f"w{i}" for i in range(0, 2000, 2)] + ['"', "a\\"]}) == 20
        for wrong in (None, 2**63, -(2**63) - 1, float("nan"), [], "\ud800", "a\0", {"x": 1}):
            for where in ({"x": wrong}, {"x": {"eq": wrong}}, {"x": [1, wrong]}, {"n": {"lt": wrong}}):
                with pytest.raises(UsageError, match=r"filter\.|'in' takes|no operator"):
                    index.count(where)
        with pytest.raises(UsageError, match=r"10,001 values; at most 10,000"):
            index.count({"n": list(range(10_001))})


@pytest.mark.parametrize("place", ["milvus", "pgvector"], indirect=True)  # a local index has no server
def test_an_open_index_outlives_its_server(place: Place) -> None:
    vectors = vectors_of(10)
    with place.create() as index:
        index.upsert([str(i) for i in range(10)], vectors)
        place.kill_server()
        for attempt in range(100):  # the connection is found broken by the first call
            try:
                found = index.search(vectors[4], k=1)
                break
            except TophitError:
                assert attempt < 99
                time.sleep(0.3)
        assert ids_of(found[0]) == ["4"]
        index.upsert(["10"], vectors[:1])
        assert len(index) == 11
