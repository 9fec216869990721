"""The kind of a local index is chosen by measuring candidates within a budget; what was measured is kept and shown."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.search.test_damage import only
from typer.testing import CliRunner

from tophit.cli import app
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.search import Index
from tophit.search.local import choosing
from tophit.search.local.snapshot import publish, read_snapshot

COUNT, DIM = 2000, 16


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    random = np.random.default_rng(3)
    values = random.normal(size=(20, DIM))[random.integers(0, 20, COUNT)] + 0.5 * random.normal(size=(COUNT, DIM))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def filled(folder: Path, vectors: np.ndarray, **options: Any) -> Index:
    index = Index.create(folder, DIM, exact_below=1000, **options)
    index.upsert([str(i) for i in range(len(vectors))], vectors, [{"n": i} for i in range(len(vectors))])
    index.compact()
    return index


def kinds_measured(index: Index) -> dict[str, bool]:
    """Return of each kind whether it was measured or left out."""
    return {one["kind"]: "left out" not in one for one in index.stats()["measured"]}


def test_the_fastest_that_reaches_the_recall_is_chosen_and_what_was_measured_is_kept(
    tmp_path: Path, vectors: np.ndarray
) -> None:
    with filled(tmp_path, vectors) as index:
        told = index.stats()
        assert kinds_measured(index) == {"flat": True, "ivf": True, "pq": True, "hnsw": True}
        reached = [one for one in told["measured"] if one["recall@10"] >= 0.98]
        cost = {one["kind"]: np.prod(list(one["microseconds"].values())) for one in reached}
        assert told["kind"] == min(cost, key=cost.__getitem__)
        assert all(one["memory"] > 0 and one["build seconds"] >= 0 for one in told["measured"])
    with Index.open(tmp_path) as again:
        assert again.stats()["measured"] == told["measured"]
        assert again.verify() == []


def test_a_choice_holds_until_the_index_is_twice_as_large_or_something_else_is_asked_for(
    tmp_path: Path, vectors: np.ndarray
) -> None:
    def grow(index: Index, start: int, count: int) -> None:
        index.upsert([str(i) for i in range(start, start + count)], vectors[:count])
        index.compact()

    with filled(tmp_path, vectors[:1200]) as index:
        first = index.stats()
        grow(index, 1200, 800)
        second = index.stats()
        assert second["kind"] == first["kind"]
        assert second["measured"] == first["measured"]
        assert second["recall@10"] >= 0.98
        grow(index, 2000, 800)  # more than twice the 1,200 that were measured
        assert index.stats()["measured"] != first["measured"]
    with Index.open(tmp_path, writable=True, build="1h") as index:
        before = index.stats()["measured"]
        index.compact()
        assert index.stats()["measured"] != before


def test_a_kind_that_needs_too_much_memory_is_left_out(tmp_path: Path, vectors: np.ndarray) -> None:
    with filled(tmp_path, vectors, memory="30KB") as index:  # 16 bytes of codes and 8 of a key are 48 KB
        assert kinds_measured(index) == {"flat": False, "ivf": False, "pq": True, "hnsw": False}
        assert index.stats()["kind"] == "pq"
        reasons = {one["kind"]: one.get("left out") for one in index.stats()["measured"]}
        assert reasons["flat"] == "needs 0.1 MB of 30.0 kB memory"
        index.upsert(["more"], vectors[:1])
        index.compact()
        assert index.stats()["kind"] == "pq"  # the budget stays
    with Index.open(tmp_path, writable=True, memory="1GB") as index:
        index.compact()
        assert all(kinds_measured(index).values())


def test_with_less_memory_than_any_kind_needs_lists_are_read_from_the_disk(tmp_path: Path, vectors: np.ndarray) -> None:
    with filled(tmp_path, vectors, memory=1000) as index:
        assert index.stats()["kind"] == "ivf"
        assert index.search(vectors[7], 1)[0][0].id == "7"


def test_a_graph_that_would_take_too_long_or_is_slower_on_a_part_is_not_built(
    tmp_path: Path, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "TRIAL", 500)
    with filled(tmp_path / "short", vectors, build=0.01) as index:
        said = {one["kind"]: one.get("left out", "") for one in index.stats()["measured"]}
        assert index.stats()["kind"] in ("ivf", "flat")
        assert said["ivf"] == ""  # one is always built
        assert "for building are over" in said["hnsw"]
    for cost, reason in ((lambda microseconds: 1.0, "would take about"), (_falling(), "slower than")):
        monkeypatch.setattr(choosing, "_cost", cost)
        monkeypatch.setattr(choosing, "monotonic", _clock())
        with filled(tmp_path / reason, vectors, build=15) as index:
            said = {one["kind"]: one.get("left out", "") for one in index.stats()["measured"]}
            assert reason in said["hnsw"]


def _falling() -> Callable[[dict[str, float]], float]:
    """Return a cost that is lower with every call: what is compared with the best is then higher."""
    calls = iter(range(1000, 0, -1))
    return lambda microseconds: float(next(calls))


def _clock() -> Callable[[], float]:
    """Return a clock on which a second passes between looks."""
    ticks = iter(range(10_000))
    return lambda: float(next(ticks))


def test_where_exact_search_is_chosen_every_neighbour_is_found(
    tmp_path: Path, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = iter([0.5, *range(1, 1000)])
    known: dict[int, float] = {}
    monkeypatch.setattr(choosing, "_cost", lambda one: known.setdefault(id(one), next(costs)))
    with filled(tmp_path, vectors) as index:
        assert index.stats()["kind"] == "flat"
        assert kinds_measured(index)["ivf"]
        queries = vectors[:50] + np.float32(0.01)
        truth = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
        assert [[int(one) for one in ids] for ids in index.nearest(queries, 10)[0]] == truth.tolist()
        version = index.stats()["version"]
        index.compact()  # nothing to do
        assert index.stats()["version"] == version


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"memory": "2 apples"}, "memory is a number with its unit .B, KB, MB, GB, TB., such as 2GB, not '2 apples'"),
        ({"memory": "GB"}, "memory is a number"),
        ({"memory": 0}, "memory is a number"),
        ({"build": "5"}, "build is a number with its unit .s, min, h., such as 5min, not '5'"),
        ({"build": -1}, "build is a number"),
        ({"build": float("nan")}, "build is a number"),
    ],
)
def test_a_budget_that_can_not_be_read_is_refused(tmp_path: Path, budget: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Index.create(tmp_path / "index", 4, **budget)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("kind", ["ivf", "pq", "hnsw"])
def test_damage_of_each_kind_is_noticed_and_repaired(tmp_path: Path, vectors: np.ndarray, kind: str) -> None:
    filled(tmp_path, vectors, kind=kind).close()
    path = only(tmp_path, "*.faiss")
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    with pytest.raises(TophitError, match=rf"{path.name} has {len(content) - 3} bytes instead of {len(content)}"):
        Index.open(tmp_path)
    path.write_bytes(b"??" + content[2:])
    with pytest.raises(TophitError, match=f"{path.name} can't be read"):
        Index.open(tmp_path)
    Index.repair_folder(tmp_path)
    with Index.open(tmp_path, writable=True) as index:
        index.compact()
        assert (len(index), index.stats()["kind"], index.verify()) == (COUNT, kind, [])


def test_damaged_metadata_beside_the_vectors_is_noticed_and_repaired(tmp_path: Path, vectors: np.ndarray) -> None:
    filled(tmp_path, vectors, kind="flat").close()
    path = only(tmp_path, "*.texts")
    content = path.read_bytes()
    path.write_bytes(content.replace(b'{"n":7}', b'{"n":8}'))
    with Index.open(tmp_path) as index:
        assert any(path.name in problem for problem in index.verify())
        assert index.nearest(vectors[7], 1)[0] == [["7"]]
        with pytest.raises(TophitError, match="metadata does not match its checksum; repair it"):
            index.search(vectors[7], 1)
    Index.repair_folder(tmp_path)
    with Index.open(tmp_path) as index:
        assert index.search(vectors[7], 1)[0][0].metadata == {"n": 7}


def test_a_segment_without_metadata_of_an_earlier_version_asks_the_database(
    tmp_path: Path, vectors: np.ndarray
) -> None:
    filled(tmp_path, vectors, kind="ivf").close()
    snapshot = read_snapshot(tmp_path)
    (segment,) = snapshot.segments
    files = {name: facts for name, facts in segment.files.items() if "text" not in name}
    publish(tmp_path, replace(snapshot, segments=(replace(segment, files=files),)))
    with Index.open(tmp_path, writable=True) as index:
        assert [hit.metadata["n"] for hit in index.search(vectors[7], 1, {"n": {"lt": 9}})[0]] == [7]
        index.upsert(["new"], vectors[7:8], [{"n": -1}])
        hits, _ = index.search(vectors[[7, 8]], 2)
        assert {hit.id: hit.metadata["n"] for hit in hits} == {"7": 7, "new": -1}
        index.compact()
        assert index.search(vectors[9], 1)[0][0].metadata == {"n": 9}
        assert index.verify() == []


def test_the_command_line_takes_a_budget_and_shows_what_was_measured(
    tmp_path: Path, vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    def tophit(*arguments: object) -> str:
        return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False).stdout

    folder, names = tmp_path / "mine", np.array([f"{i}.png" for i in range(200)])
    np.savez(tmp_path / "f.npz", features=vectors[:200], labels=np.arange(200) % 5, names=names)
    build_embedder(f"features/{DIM}").save(tmp_path / "embedder")
    arguments = ("index", tmp_path / "f.npz", "--run", tmp_path / "embedder", "--out", folder)
    with pytest.raises(UsageError, match="memory is a number with its unit"):
        tophit(*arguments, "--memory", "much")
    with pytest.raises(UsageError, match="--memory: only for the local backend, not for milvus"):
        tophit(*arguments, "--memory", "1GB", "--backend", "milvus", "--uri", "http://127.0.0.1:9")
    tophit(*arguments, "--memory", "1GB", "--build", "2min")
    told = json.loads(tophit("items", "info", folder, "--json"))
    assert (told["budget"], told["kind"], told["measured"]) == ({"memory": 1e9, "build": 120.0}, "flat", [])
    assert "nothing: the kind was not chosen by measuring" in tophit("items", "info", folder)
    with Index.open(folder / "v1" / "index", writable=True, exact_below=100) as index:
        index.compact()
    shown = tophit("items", "info", folder)
    assert "1.0 GB of memory, 120 s to build" in shown
    assert "ivf: recall@10" in shown
    tophit("items", "compact", folder, "--memory", "2KB")
    assert "hnsw: left out, needs" in tophit("items", "info", folder)
