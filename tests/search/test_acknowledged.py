"""Acknowledged writes that a damaged file has lost are noticed when the index is opened, which says how to go on."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from benchmarks.damage import flip
from tests.search.test_damage import only

from tophit.errors import TophitError, UsageError
from tophit.search import Index

IDS = [f"id {i}" for i in range(6)]
VECTORS = np.eye(6, 8)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with six acknowledged writes in the write-ahead log, whose writer never closed it."""
    folder = tmp_path_factory.mktemp("crashed")
    with Index.create(folder / "made", 8) as index:
        for number, name in enumerate(IDS):
            index.upsert([name], VECTORS[[number]], [{"number": number}])
        shutil.copytree(folder / "made", folder / "crashed")
    return folder / "crashed"


@pytest.fixture
def index_folder(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "index"))


def test_a_crash_alone_loses_nothing(index_folder: Path) -> None:
    with Index.open(index_folder, writable=True) as index:
        assert [item.id for item in index.items()] == IDS
        assert index.verify() == []


def test_every_flipped_bit_of_the_log_is_noticed(index_folder: Path) -> None:
    """Sixty of them, all over the write-ahead log: each lost a write in silence before."""
    log = only(index_folder, "*-wal")
    content = log.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(content), 60):
        flip(log, 8 * int(place))
        for writable in (False, True):
            with pytest.raises(TophitError, match=r"acknowledged writes? (is|are) missing \(.*(Restore|repair)"):
                Index.open(index_folder, writable=writable)
        (index_folder / f"{log.name.removesuffix('-wal')}-shm").unlink(missing_ok=True)
        log.write_bytes(content)
    with Index.open(index_folder) as index:
        assert [item.id for item in index.items()] == IDS


def test_a_missing_log_is_noticed_and_repair_says_what_is_gone(index_folder: Path) -> None:
    log = only(index_folder, "*-wal")
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])
    with pytest.raises(TophitError, match=r"upsert of 1 items, the first 'id 5' at 20\d\d-"):
        Index.open(index_folder, writable=True)
    report = Index.repair_folder(index_folder)
    assert "acknowledged writes are missing" in report[0]
    assert "the first 'id 5'" in report[0]
    with Index.open(index_folder, writable=True) as index:
        kept = [item.id for item in index.items()]
        assert kept == IDS[: len(kept)]
        assert "id 5" not in kept
        assert index.verify() == []
        index.upsert(IDS, VECTORS)
        assert len(index) == 6


def test_a_log_that_was_folded_in_and_then_damaged_costs_nothing(index_folder: Path) -> None:
    log = only(index_folder, "*-wal")
    content = log.read_bytes()
    Index.open(index_folder, writable=True).close()  # folds it into the file and removes it
    log.write_bytes(content)
    flip(log, 8 * (len(content) // 3))  # as if the power failed just before it was removed, and a bit was lost
    with pytest.raises(TophitError, match="acknowledged writes are missing"):
        Index.open(index_folder)
    assert Index.repair_folder(index_folder)[-1].startswith("6 items were kept")
    with Index.open(index_folder) as index:
        assert [item.id for item in index.items()] == IDS


def test_an_older_database_in_the_place_of_the_newer_is_noticed(tmp_path: Path) -> None:
    with Index.create(tmp_path, 8) as index:
        index.upsert(IDS[:3], VECTORS[:3])
    older = only(tmp_path, "items-*.sqlite")
    content = older.read_bytes()
    with Index.open(tmp_path, writable=True) as index:
        index.upsert(IDS[3:], VECTORS[3:])
    older.write_bytes(content)
    with pytest.raises(TophitError, match="1 acknowledged write is missing"):
        Index.open(tmp_path)


@pytest.mark.parametrize("damage", ["flipped", "last byte", "missing", "cut"])
def test_damage_of_the_list_itself_is_found_and_mended(index_folder: Path, damage: str) -> None:
    path = only(index_folder, "*-acknowledged")
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(b"\n".join(content.splitlines()[:2]) + b"\n")
    else:
        flip(path, 8 * (len(content) // 2 if damage == "flipped" else len(content) - 1))
    if damage != "cut":
        with pytest.raises(TophitError, match="list of acknowledged writes"):
            Index.open(index_folder)
    report = Index.repair_folder(index_folder)
    assert "list of acknowledged writes" in report[0]
    with Index.open(index_folder, writable=True) as index:
        assert [item.id for item in index.items()] == IDS
        assert index.verify() == []


def test_a_line_that_a_crash_left_unfinished_is_no_damage(index_folder: Path) -> None:
    path = only(index_folder, "*-acknowledged")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    with Index.open(index_folder) as index:
        assert index.verify() == []
    with Index.open(index_folder, writable=True) as index:
        assert [item.id for item in index.items()] == IDS
        index.upsert(["more"], VECTORS[:1])
    with Index.open(index_folder) as index:
        assert len(index) == 7
        assert index.verify() == []


def test_the_list_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tophit.search.local.acknowledged._MOST_BYTES", 1000)
    with Index.create(tmp_path, 8) as index:
        for number in range(30):
            index.upsert([f"{number}"], VECTORS[:1])
        assert only(tmp_path, "*-acknowledged").stat().st_size < 1500
        assert index.verify() == []
    with Index.open(tmp_path, writable=True) as index:
        assert len(index) == 30


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with Index.create(tmp_path, 8) as index:
        index.upsert(IDS[:3], VECTORS[:3])
        child = os.fork()
        if not child:
            said = []
            for work in (lambda: index.upsert(["child"], VECTORS[:1]), lambda: index.search(VECTORS[0]), index.close):
                try:
                    work()
                    said.append("done")
                except UsageError as error:
                    said.append(str(error))
            os.write(writing, "\n".join(said).encode())
            os._exit(0)
        os.waitpid(child, 0)
        upsert, search, close = os.read(reading, 10_000).decode().split("\n")
        assert f"opened in process {os.getpid()}, before process {child} was forked" in upsert
        assert search == upsert
        assert close == "done"
        index.upsert(IDS[3:], VECTORS[3:])
        assert index.verify() == []
    with Index.open(tmp_path, writable=True) as index:
        assert [item.id for item in index.items()] == IDS
    os.close(reading)
    os.close(writing)
