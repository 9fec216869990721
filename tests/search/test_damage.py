"""Damage is found, named and mended as far as it can be; faults while writing leave the index as it was."""

import errno
import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tophit.errors import DiskFull, TophitError
from tophit.search import Index

NAMES = [f"id {i:03}" for i in range(300)]


def filled(folder: Path, compacted: bool = True) -> np.ndarray:
    """Make an index: 200 items in a segment, of which 10 are dead and 10 replaced, and 100 in the log."""
    vectors = np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    with Index.create(folder, 8, "print") as index:
        index.upsert(NAMES[:210], vectors[:210], [{"n": i} for i in range(210)])
        if compacted:
            index.compact()
        index.delete(NAMES[200:210])
        index.upsert(NAMES[200:], vectors[200:], [{"n": i} for i in range(200, 300)])
        index.upsert(NAMES[:10], vectors[:10], [{"n": i} for i in range(10)])
    return vectors


def contents(folder: Path) -> dict[str, tuple[list[float], dict[str, Any]]]:
    with Index.open(folder) as index:
        return {item.id: (item.vector.tolist(), item.metadata) for item in index.items()}


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)


def test_a_sound_index_verifies_and_needs_no_repair(tmp_path: Path) -> None:
    filled(tmp_path)
    with Index.open(tmp_path, writable=True) as index:
        assert index.verify() == []
        assert index.repair() == []
        index.compact()
        assert index.verify() == []
        assert len(index) == 300


def test_a_damaged_vector_is_found_and_recovered_from_the_log(tmp_path: Path) -> None:
    filled(tmp_path)
    before = contents(tmp_path)
    flip(only(tmp_path, "segment-*.vectors"), 20 * 32 + 3)
    with Index.open(tmp_path, writable=True) as index:
        assert any("vectors does not match its checksum" in problem for problem in index.verify())
        with pytest.raises(TophitError, match="1 vectors, the first of 'id 020', do not match their checksums"):
            index.compact()  # damage does not spread into a new segment
        report = index.repair()
        assert "300 items were kept" in report[-1]
        assert index.verify() == []
        index.compact()
    assert contents(tmp_path) == before


def test_what_is_lost_is_named(tmp_path: Path) -> None:
    filled(tmp_path)
    with Index.open(tmp_path, writable=True) as index:
        index.compact()
        index.upsert(["extra"], np.ones((1, 8)))
        index.compact()  # from here on the log has none of the older items
    before = contents(tmp_path)
    newest = max(tmp_path.glob("segment-*.vectors"), key=lambda path: path.stat().st_size)
    for path in tmp_path.glob("segment-*.vectors"):
        flip(path, 20 * 32)
    assert newest.stat().st_size == 301 * 32
    with Index.open(tmp_path, writable=True) as index:
        report = index.repair()
        assert any("1 items are lost: 'id 030'" in line or "1 items are lost: 'id 020'" in line for line in report)
        assert len(index) == 300
    after = contents(tmp_path)
    assert all(before[item_id] == value for item_id, value in after.items())


@pytest.mark.parametrize("file", ["vectors", "keys", "ids", "ends"])
def test_a_short_or_missing_file_is_refused_then_repaired(tmp_path: Path, file: str) -> None:
    filled(tmp_path)
    before = contents(tmp_path)
    path = only(tmp_path, f"segment-*.{file}")
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(TophitError, match=rf"is damaged: .*{file} has \d+ bytes instead of \d+"):
        Index.open(tmp_path)
    path.unlink()
    with pytest.raises(TophitError, match="is damaged"):
        Index.open(tmp_path, writable=True)
    assert Index.repair_folder(tmp_path)[-1].startswith("300 items were kept")
    assert contents(tmp_path) == before  # the log still had them all


def test_a_damaged_manifest_is_refused_and_the_previous_one_has_everything(tmp_path: Path) -> None:
    filled(tmp_path)
    before = contents(tmp_path)
    manifest = json.loads((tmp_path / "index.json").read_text())
    for damaged in ("{", "[]", json.dumps({**manifest, "dim": 9})):
        (tmp_path / "index.json").write_text(damaged)
        with pytest.raises(TophitError, match="is damaged"):
            Index.open(tmp_path)
    assert Index.repair_folder(tmp_path)[-1].startswith("300 items were kept")
    assert contents(tmp_path) == before
    (tmp_path / "index.json").write_text(json.dumps({**manifest, "format": 3}))
    with pytest.raises(TophitError, match="format 3; this version of Tophit reads 2"):
        Index.open(tmp_path)
    (tmp_path / "index.json").write_text(json.dumps({"format": 1, "vectors": "vectors-1.faiss"}))
    with pytest.raises(TophitError, match="made by an older Tophit; build it again"):
        Index.open(tmp_path)


def test_a_damaged_database_is_found_and_what_is_readable_kept(tmp_path: Path) -> None:
    vectors = filled(tmp_path)
    path = only(tmp_path, "items-*.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("""UPDATE items SET metadata = '{"n":"changed"}' WHERE id = 'id 050'""")
    connection.commit()
    connection.close()
    with Index.open(tmp_path, writable=True) as index:
        assert f"{path.name}: the item 'id 050' does not match its checksum." in index.verify()
        with pytest.raises(TophitError, match="the item 'id 050' does not match its checksum"):
            index.get(["id 050"])
        assert any("1 items are lost: 'id 050'" in line for line in index.repair())
        assert len(index) == 299
    path = max(tmp_path.glob("items-*.sqlite"), key=lambda one: one.stat().st_mtime)
    with Index.open(tmp_path, writable=True) as index:
        index.compact()
    path.write_bytes(b"nonsense" * 1000)
    with pytest.raises(TophitError, match=r"can't be read|is damaged"):
        Index.open(tmp_path)
    report = Index.repair_folder(tmp_path)
    assert any("the metadata is lost" in line for line in report)
    after = contents(tmp_path)
    assert len(after) == 299
    assert after["id 100"] == (vectors[100].tolist(), {})


FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {}


def fault(module_function: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        FAULTS[function.__name__] = (module_function, function)
        return function

    return register


@fault("write")
def disk_full(real: Any, *arguments: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


@fault("fsync")
def failed_fsync(real: Any, *arguments: Any) -> Any:
    raise OSError(errno.EIO, "Input/output error")


@fault("replace")
def failed_rename(real: Any, *arguments: Any) -> Any:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("after", range(12))
def test_a_fault_while_compacting_leaves_every_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: int
) -> None:
    vectors = filled(tmp_path)
    before = contents(tmp_path)
    function, broken = FAULTS[name]
    real, calls = getattr(os, function), 0

    def sometimes(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        return broken(real, *arguments) if calls > after else real(*arguments, **more)

    with Index.open(tmp_path, writable=True) as index:
        with monkeypatch.context() as patched:
            patched.setattr(os, function, sometimes)
            try:
                index.compact()
                failed = False
            except TophitError as error:
                failed = "Input/output" in str(error) or "No space" in str(error)
                assert failed
        assert failed or calls <= after
        assert {item.id: (item.vector.tolist(), item.metadata) for item in index.items()} == before
        index.upsert(["after"], vectors[:1])  # it goes on
        index.delete(["id 000"])
        assert index.verify() == []
    after_all = contents(tmp_path)
    assert set(after_all) == (set(before) | {"after"}) - {"id 000"}


def test_the_system_may_write_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    before = contents(tmp_path)
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, content: real(handle, content[:7]))
    with Index.open(tmp_path, writable=True) as index:
        index.compact()
        assert index.verify() == []
    assert contents(tmp_path) == before


def test_an_interrupt_after_the_commit_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = filled(tmp_path)

    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with Index.open(tmp_path, writable=True) as index:
        with monkeypatch.context() as patched:
            patched.setattr("tophit.search.local.delta.Delta.append", interrupt)
            with pytest.raises(KeyboardInterrupt):
                index.upsert(["interrupted"], vectors[:1])
        index.compact()  # its memory lacks the item, so it must read the disk first
        assert index.get(["interrupted"])[0] is not None
        assert index.verify() == []


class _Failing:
    """A database's connection whose commits fail with an error of SQLite."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection, self._name = connection, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, text: str, *more: Any) -> sqlite3.Cursor:
        if text == "COMMIT":
            error = sqlite3.OperationalError("the disk fails")
            error.sqlite_errorcode, error.sqlite_errorname = getattr(sqlite3, self._name), self._name
            raise error
        return self._connection.execute(text, *more)


@pytest.mark.parametrize("name", ["SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC"])
def test_after_a_failed_commit_writing_goes_on_unless_the_disk_can_not_tell_what_it_has(
    tmp_path: Path, name: str
) -> None:
    vectors = filled(tmp_path)
    with Index.open(tmp_path, writable=True) as index:
        database = index.backend._state.database  # type: ignore[attr-defined]
        sound, database.connection = database.connection, _Failing(database.connection, name)
        with pytest.raises(DiskFull if name == "SQLITE_FULL" else TophitError, match="the disk fails"):
            index.upsert(["new"], vectors[:1])
        database.connection = sound
        if name == "SQLITE_IOERR_FSYNC":
            with pytest.raises(TophitError, match=r"open the index in .* again"):
                index.upsert(["new"], vectors[:1])
        else:
            assert index.get(["new"]) == [None]
            index.upsert(["new"], vectors[:1])
            assert len(index) == 301
        assert index.verify() == []


LIMITED = """
import resource, signal, sys, numpy as np
from tophit.errors import TophitError
from tophit.search import Index
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit fails, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
index = Index.create(sys.argv[1], 64)
vectors = np.random.default_rng(0).normal(size=(100, 64))
for number in range(1000):
    try:
        index.upsert([f"{number} {i}" for i in range(100)], vectors)
    except TophitError as error:
        print("failed", error, flush=True)
        break
    print("written", flush=True)
assert len(index) == 100 * number, len(index)
"""


def test_no_room_for_the_database(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, env=dict(os.environ)
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[-1].startswith("failed")
    written = lines.count("written")
    assert written > 0
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 400_000  # the limit was the other process's
    with Index.open(tmp_path, writable=True) as index:
        assert len(index) in (100 * written, 100 * (written + 1))  # whether the last is there is unknown, but all of it
        assert index.verify() == []
        index.upsert(["more"], np.ones((1, 64)))
