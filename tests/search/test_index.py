"""The index through its public names, with the local backend."""

import threading
from pathlib import Path

import numpy as np
import pytest

from tophit.errors import TophitError, UsageError
from tophit.search import Index


def unit(random: np.random.Generator, count: int, dim: int) -> np.ndarray:
    vectors = random.normal(size=(count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_index(folder: Path, count: int = 50, dim: int = 8, seed: int = 0) -> tuple[Index, np.ndarray]:
    vectors = unit(np.random.default_rng(seed), count, dim)
    index = Index.create(folder, dim, "print")
    index.upsert([f"id {i}" for i in range(count)], vectors, [{"n": i} for i in range(count)])
    return index, vectors


def test_search_is_exact_and_best_first(tmp_path: Path) -> None:
    index, vectors = make_index(tmp_path)
    queries = unit(np.random.default_rng(1), 7, 8)
    for query, hits in zip(queries, index.search(3 * queries, k=5), strict=True):
        expected = np.argsort(-(vectors @ query), kind="stable")[:5]
        assert [hit.id for hit in hits] == [f"id {i}" for i in expected]
        assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]
        assert [hit.score for hit in hits] == pytest.approx((vectors @ query)[expected], abs=1e-6)
        assert [hit.metadata["n"] for hit in hits] == expected.tolist()
    assert index.search(queries[0], 1, with_metadata=False)[0][0].metadata == {}


def test_what_was_written_is_there_after_reopening_and_readers_see_it_when_they_refresh(tmp_path: Path) -> None:
    writer, vectors = make_index(tmp_path)
    reader = Index.open(tmp_path, fingerprint="print")
    writer.upsert(["id 3", "new"], vectors[:2], [{"n": "changed"}, {}])
    assert writer.delete(["id 4", "never there", "id 4"]) == 1
    assert len(writer) == 50
    before = reader.get(["id 3", "id 4", "new"])
    assert [item and item.metadata for item in before] == [{"n": 3}, {"n": 4}, None]
    assert reader.search(vectors[4], 1)[0][0].id == "id 4"
    assert reader.refresh()
    assert not reader.refresh()
    for index in (reader, writer):
        found = index.get(["new", "id 3", "id 4"])
        assert [item and item.metadata for item in found] == [{}, {"n": "changed"}, None]
        assert found[0] is not None
        assert np.array_equal(found[0].vector, vectors[1])
    writer.close()
    with Index.open(tmp_path, writable=True) as again:
        assert len(again) == 50
        assert [item.id for item in again.items(batch=7)] == sorted(item.id for item in again.items())
        assert again.search(vectors[:3], 4) == reader.search(vectors[:3], 4)


def test_equal_scores_are_ordered_by_id_however_many_there_are(tmp_path: Path) -> None:
    with Index.create(tmp_path, 4) as index:
        names = [f"{i:03}" for i in np.random.default_rng(0).permutation(300)]
        index.upsert(names, np.ones((300, 4)))
        index.upsert(["best"], [[1, 1, 1, 0.9]])
        for query in (np.ones(4), [1, 1, 1, 1.01]):
            assert [hit.id for hit in index.search(query, 5)[0]] == ["000", "001", "002", "003", "004"]
        assert [hit.id for hit in index.search([1, 1, 1, 0], 3)[0]] == ["best", "000", "001"]


def test_filters(tmp_path: Path) -> None:
    index, vectors = make_index(tmp_path)
    index.upsert(
        ["a", "b", "c", "d"],
        vectors[:4],
        [{"n": 7, "tag": "x"}, {"n": True, "tag": "y"}, {"n": "7"}, {"n": [7], "tag": None}],
    )
    hits = index.search(vectors[7], 3, {"n": 7})[0]
    assert [hit.id for hit in hits] == ["id 7", "a"]
    assert index.count({"n": True}) == 1
    assert index.count({"n": {"ne": 7}}) == 52
    assert index.count({"n": {"gte": 10, "lt": 20}}) == 10
    assert index.count({"n": ["7", 8, 9.0]}) == 3
    assert index.count({"tag": {"gt": "x"}}) == 1
    assert index.count({"n": 7, "tag": {"ne": "x"}}) == 1
    assert index.count({"none": 1}) == 0
    assert index.search(vectors, 3, {"none": 1}) == [[]] * 50
    index.upsert(["a"], vectors[:1], [{"n": 8}])
    assert (index.count({"n": 7}), index.count({"tag": "x"})) == (1, 0)
    index.delete(["id 7"])
    assert index.count({"n": 7}) == 0


def test_more_results_than_items_an_empty_index_and_wrong_calls(tmp_path: Path) -> None:
    index, vectors = make_index(tmp_path / "three", 3)
    assert len(index.search(vectors[0], k=100)[0]) == 3
    assert index.search(np.empty((0, 8)), 3) == []
    empty = Index.create(tmp_path / "empty", 8)
    assert empty.search(vectors[:2], 5) == [[], []]
    assert (len(empty), list(empty.items())) == (0, [])
    with pytest.raises(TophitError, match="vectors of 8 numbers, the query has 5"):
        index.search(np.ones((1, 5)), 1)
    for k in (0, 1001, 2.5, True):
        with pytest.raises(UsageError, match="k must be at least 1 and at most 1000"):
            index.search(vectors, k)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="There are 2 ids but 3 vectors"):
        index.upsert(["a", "b"], vectors)
    with pytest.raises(UsageError, match="Vector 1 is zero"):
        index.upsert(["a", "b"], [vectors[0], np.zeros(8)])
    with pytest.raises(UsageError, match="Vector 0 holds infinity or not-a-number"):
        index.upsert(["a"], [[np.nan] * 8])
    with pytest.raises(UsageError, match="not the string 'abc'"):
        index.upsert("abc", vectors)
    for wrong in ("", 5, "x" * 2000, "a\0", "\ud800"):
        with pytest.raises(UsageError, match=r"id"):
            index.upsert([wrong], vectors[:1])  # type: ignore[list-item]
    for wrong in ({"a": {1, 2}}, {"a": float("nan")}, {1: 2}, {"a": 2**64}, {"a": "\0"}, "text", {"a": "x" * 70_000}):
        with pytest.raises(UsageError, match=r"metadata\[0\]"):
            index.upsert(["a"], vectors[:1], [wrong])  # type: ignore[list-item]
    with pytest.raises(UsageError, match=r"filter.a: there is no operator 'like'"):
        index.count({"a": {"like": 1}})
    with pytest.raises(UsageError, match="dim is a whole number"):
        Index.create(tmp_path / "none", 0)
    with pytest.raises(UsageError, match=r"no search backend 'x'.*Choices: local"):
        Index.create(tmp_path / "none", 4, backend="x")
    assert len(index) == 3


def test_of_an_id_given_twice_the_last_counts(tmp_path: Path) -> None:
    with Index.create(tmp_path, 2) as index:
        index.upsert(["a", "b", "a"], [[1, 0], [0, 1], [0, -1]], [{"n": 1}, {"n": 2}, {"n": 3}])
        assert [(item.id, item.metadata, item.vector.tolist()) for item in index.items()] == [
            ("a", {"n": 3}, [0, -1]),
            ("b", {"n": 2}, [0, 1]),
        ]


def test_one_writer_at_a_time_and_readers_do_not_write(tmp_path: Path) -> None:
    index, vectors = make_index(tmp_path)
    with pytest.raises(TophitError, match="Another process is writing"):
        Index.open(tmp_path, writable=True)
    index.close()
    with pytest.raises(UsageError, match="already holds an index"):
        Index.create(tmp_path, 8)
    with Index.open(tmp_path) as reader, pytest.raises(UsageError, match="open it with writable=True"):
        reader.upsert(["a"], vectors[:1])
    with pytest.raises(TophitError, match="made by another embedder"):
        Index.open(tmp_path, fingerprint="another", writable=True)
    again = Index.open(tmp_path, writable=True)  # the refused one left no lock
    again.close()
    again.close()
    with pytest.raises(TophitError, match="is closed"):
        again.search(vectors[0])
    with pytest.raises(TophitError, match="is closed"):
        again.upsert(["a"], vectors[:1])


def test_build_replaces_a_whole_index(tmp_path: Path) -> None:
    index, vectors = make_index(tmp_path)
    index.close()
    with Index.build(tmp_path, ["a", "b"], vectors[:2, :5], [{"n": 1}, {"n": 2}], "other") as built:
        assert (len(built), built.dim, built.fingerprint) == (2, 5, "other")
    with Index.open(tmp_path, fingerprint="other") as again:
        assert [item.metadata for item in again.items()] == [{"n": 1}, {"n": 2}]
    with pytest.raises(UsageError, match="different from each other"):
        Index.build(tmp_path, ["a", "a"], vectors[:2])
    assert len(Index.open(tmp_path)) == 2


def test_threads_share_an_index(tmp_path: Path) -> None:
    index, vectors = make_index(tmp_path, 200)
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                index.upsert([f"{number} {turn}"], vectors[turn : turn + 1], [{"n": -number}])
                assert index.search(vectors[turn], 1, {"n": -number})[0][0].score == pytest.approx(1)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(index) == 280
