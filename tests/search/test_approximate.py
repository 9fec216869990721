"""Above a size the local backend searches through lists or a graph: recall is measured; filters, deletions keep it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tophit.errors import UsageError
from tophit.search import Hit, Index
from tophit.search.local import approximate, building

COUNT, DIM, GROUPS = 3000, 16, 40
KINDS = ["ivf", "pq", "hnsw"]


@pytest.fixture(scope="module")
def vectors() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clustered unit vectors, the group of each, and queries of the same kind."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(GROUPS, DIM))
    groups = random.integers(0, GROUPS, COUNT + 200)
    values = (centres[groups] + 0.8 * random.normal(size=(COUNT + 200, DIM))).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values[:COUNT], groups[:COUNT], values[COUNT:]


def filled(folder: Path, vectors: np.ndarray, groups: np.ndarray, **options: Any) -> Index:
    index = Index.create(folder, DIM, exact_below=1000, **options)
    fields = [{"group": int(group), "n": i} for i, group in enumerate(groups)]
    index.upsert([str(i) for i in range(len(vectors))], vectors, fields)
    index.compact()
    return index


def recall(found: list[list[Hit]], queries: np.ndarray, vectors: np.ndarray, allowed: np.ndarray, k: int) -> float:
    """Compare with the exact nearest ones among the allowed rows."""
    nearest = allowed[np.argsort(-(queries @ vectors[allowed].T), axis=1)[:, :k]]
    pairs = zip(found, nearest.tolist(), strict=True)
    return float(np.mean([len({int(hit.id) for hit in hits} & set(true)) / len(true) for hits, true in pairs]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", [0.9, 0.98])
def test_the_recall_asked_for_is_reached_and_told(tmp_path: Path, vectors: Any, kind: str, target: float) -> None:
    stored, groups, queries = vectors
    everything = np.arange(COUNT)
    with filled(tmp_path, stored, groups, kind=kind, recall=target) as index:
        told = index.stats()
        assert told["kind"] == kind
        assert told["recall@10"] >= target
        for k in (10, 100):
            # 200 other queries than those it was tuned with: three standard errors of slack
            assert recall(index.search(queries, k), queries, stored, everything, k) > target - 0.03
        assert index.search(stored[5], 1)[0][0].score == pytest.approx(1)  # scores are exact
    with Index.open(tmp_path) as again:
        assert again.stats()["recall@10"] == told["recall@10"]
        assert len(again.search(queries[0], 1000)[0]) == 1000


@pytest.mark.parametrize("share", [1, 10_000])
@pytest.mark.parametrize("kind", ["ivf", "pq"])
def test_centres_found_by_codes_keep_recall(
    tmp_path: Path, vectors: Any, monkeypatch: pytest.MonkeyPatch, kind: str, share: int
) -> None:
    """As with 512 lists and more; a filter that leaves few items may need all of the lists.

    With ``share`` 1 searches use the codes; with 10,000 only the building does.
    """
    monkeypatch.setattr(building, "_MANY_LISTS", 1)
    monkeypatch.setattr(building, "_SHARE_BY_CODES", share)
    monkeypatch.setattr(approximate, "EXACT_ROWS", 5)
    stored, groups, queries = vectors
    with filled(tmp_path, stored, groups, kind=kind) as index:
        assert recall(index.search(queries), queries, stored, np.arange(COUNT), 10) > 0.95
    with Index.open(tmp_path) as again:
        rare = np.arange(0, 20)
        found = again.search(queries, 10, {"n": {"lt": 20}})
        assert recall(found, queries, stored, rare, 10) > 0.95


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_alone_finds_what_it_finds_among_others(tmp_path: Path, vectors: Any, kind: str) -> None:
    stored, groups, queries = vectors
    twice = np.concatenate([stored[:-50], stored[:50]])  # pictures that the index has twice, which tie
    some = np.concatenate([queries[:30], stored[:30]])
    with filled(tmp_path, twice, groups, kind=kind) as index:
        for change in (None, lambda: index.delete(["3", "7"]), lambda: index.upsert(["new"], stored[:1])):
            if change is not None:
                change()
            for k in (1, 10):
                together = index.search(some, k)
                assert [index.search(one, k)[0] for one in some] == together
                ids, scores = zip(*(index.nearest(one, k) for one in some), strict=True)
                assert [one[0] for one in ids] == [[hit.id for hit in hits] for hits in together]
                assert [one[0] for one in scores] == [[hit.score for hit in hits] for hits in together]


def test_a_recall_of_one_is_exact_and_the_kind_can_be_changed(tmp_path: Path, vectors: Any) -> None:
    stored, groups, queries = vectors
    with filled(tmp_path, stored, groups, recall=1.0) as index:
        assert index.stats()["kind"] == "flat"
        assert recall(index.search(queries), queries, stored, np.arange(COUNT), 10) == 1
    with Index.open(tmp_path, writable=True, kind="ivf", recall=0.95) as index:
        index.compact()
        assert index.stats()["kind"] == "ivf"
        version = index.stats()["version"]
        index.compact()  # nothing to do
        assert index.stats()["version"] == version
    with pytest.raises(UsageError, match="no kind of index 'tree'; choices: auto, flat, ivf, pq, hnsw"):
        Index.create(tmp_path / "x", 3, kind="tree")
    with pytest.raises(UsageError, match="has no option 'speed'"):
        Index.create(tmp_path / "x", 3, speed=1)


@pytest.mark.parametrize(("kind", "exact_rows"), [*((kind, 50) for kind in KINDS), ("ivf", 50_000)])
def test_filters_keep_recall(
    tmp_path: Path, vectors: Any, monkeypatch: pytest.MonkeyPatch, kind: str, exact_rows: int
) -> None:
    """Filters that are random with respect to the query, and one that keeps only groups far from most queries."""
    monkeypatch.setattr(approximate, "EXACT_ROWS", exact_rows)
    stored, groups, queries = vectors
    numbers = np.arange(COUNT)
    with filled(tmp_path, stored, groups, kind=kind) as index:
        index.delete([str(i) for i in range(0, COUNT, 10)])
        alive = numbers % 10 > 0
        for where, mask in (
            ({"n": {"lt": 600}}, numbers < 600),
            ({"n": {"lt": 1500}}, numbers < 1500),
            ({"n": {"ne": 7}}, numbers != 7),
            ({"group": [1, 2, 3]}, np.isin(groups, [1, 2, 3])),
        ):
            found = index.search(queries, 10, where)
            assert recall(found, queries, stored, np.flatnonzero(mask & alive), 10) > 0.97
            single = [index.search(query, 10, where)[0] for query in queries[:10]]
            assert recall(single, queries[:10], stored, np.flatnonzero(mask & alive), 10) > 0.95
            assert all(mask[int(hit.id)] and alive[int(hit.id)] for hits in found for hit in hits)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_deleted_or_replaced_since_is_not_found(tmp_path: Path, vectors: Any, kind: str) -> None:
    stored, groups, _ = vectors
    with filled(tmp_path, stored, groups, kind=kind) as index:
        index.upsert([str(i) for i in range(100)], -stored[:100])
        index.delete([str(i) for i in range(100, 200)])
        found = index.search(stored[:200], 10)
        assert all(int(hit.id) >= 200 or hit.score < 0.999 for hits in found for hit in hits)
        assert [hits[0].id for hits in index.search(-stored[:100], 1)] == [str(i) for i in range(100)]
        assert index.stats()["dead"] == 200
        index.compact()
        assert (index.stats()["dead"], len(index)) == (0, COUNT - 100)
        assert index.verify() == []


@pytest.mark.parametrize("kind", KINDS)
def test_where_all_neighbours_were_deleted_farther_items_are_found(tmp_path: Path, vectors: Any, kind: str) -> None:
    stored, groups, queries = vectors
    near = np.argsort(-(queries[:6] @ stored.T), axis=1)[:, :400]
    with filled(tmp_path, stored, groups, kind=kind, recall=0.9) as index:
        dead = np.unique(near)
        index.delete([str(i) for i in dead])
        alive = set(range(COUNT)) - set(dead.tolist())
        for some in (queries[:6], queries[:1]):
            found = index.search(some, 10)
            assert [len(hits) for hits in found] == [10] * len(some)
            assert index.nearest(some, 10)[0] == [[hit.id for hit in hits] for hits in found]
            assert all(int(hit.id) in alive for hits in found for hit in hits)


def test_many_small_writes_become_few_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tophit.search.local import local_backend

    monkeypatch.setattr(local_backend, "SEAL_AT", 20)
    random = np.random.default_rng(0)
    values = random.normal(size=(500, 6))
    with Index.create(tmp_path, 6) as index:
        for start in range(0, 500, 5):
            index.upsert([str(i) for i in range(start, start + 5)], values[start : start + 5])
        told = index.stats()
        assert told["count"] == 500
        assert 2 <= len(told["segments"]) <= 6
        unit = values / np.linalg.norm(values, axis=1, keepdims=True)
        assert recall(index.search(unit[:50]), unit[:50], unit, np.arange(500), 10) == 1
    assert len(Index.open(tmp_path)) == 500


def test_it_works_beside_a_library_that_changes_faiss(tmp_path: Path) -> None:
    """pytorch-metric-learning imports faiss.contrib.torch_utils, whose search takes no parameters."""
    code = (
        "import sys, numpy as np, faiss.contrib.torch_utils\n"
        "from tophit.search import Index\n"
        "vectors = np.random.default_rng(0).normal(size=(1200, 16))\n"
        "index = Index.create(sys.argv[1], 16, exact_below=1000, kind='ivf')\n"
        "index.upsert([str(i) for i in range(1200)], vectors)\n"
        "index.compact()\n"
        "print(index.stats()['kind'], index.search(vectors[7], k=1)[0][0].id)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ivf", "7"]
