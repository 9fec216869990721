"""A catalogue is backed up while others write, and restored; it is verified and repaired without being opened first."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.damage import flip
from typer.testing import CliRunner

from tophit.cli import app
from tophit.errors import UsageError
from tophit.models import build_embedder
from tophit.search import Index
from tophit.search.backup import back_up, restore
from tophit.search.catalogue import open_catalogue
from tophit.search.maintenance import verify_catalogue
from tophit.search.versions import add_version, switch_version

DIM = 4
Command = Callable[..., tuple[int, str]]


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    folder = tmp_path / "mine.index"
    switch_version(folder, add_version(folder, build_embedder("features/6", dim=DIM)))
    with open_catalogue(folder, writable=True) as made:
        made.index.upsert([f"id {i}" for i in range(50)], np.random.default_rng(0).normal(size=(50, DIM)))
        made.index.compact()
    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, [str(each) for each in arguments])
        return done.exit_code, f"{done.output} {done.exception or ''}"

    return run


def ids(folder: Path) -> list[str]:
    with open_catalogue(folder) as opened:
        return [item.id for item in opened.index.items()]


def test_a_backup_is_restored_by_commands(catalogue: Path, tmp_path: Path, command: Command) -> None:
    code, said = command("items", "backup", catalogue, tmp_path / "out")
    assert (code, "50 items in 1 version are in" in said) == (0, True)
    code, said = command("items", "restore", tmp_path / "out", tmp_path / "new.index")
    assert (code, "verified" in said) == (0, True)
    assert ids(tmp_path / "new.index") == ids(catalogue)
    with open_catalogue(tmp_path / "new.index", writable=True) as restored:
        restored.index.upsert(["more"], np.ones((1, DIM)))
        assert restored.index.verify() == []


def test_a_second_backup_copies_only_what_is_new(catalogue: Path, tmp_path: Path) -> None:
    first = back_up(catalogue, tmp_path / "out").copied
    with open_catalogue(catalogue, writable=True) as opened:
        opened.index.upsert(["new"], np.ones((1, DIM)))
        opened.index.delete(["id 0"])
    second = back_up(catalogue, tmp_path / "out").copied
    segments = sum(path.stat().st_size for path in (catalogue / "v1" / "index").glob("segment-*"))
    assert second.kept >= segments
    assert second.written < first.written
    assert ids(tmp_path / "out") == sorted([*(f"id {i}" for i in range(1, 50)), "new"])
    assert len(list((tmp_path / "out" / "v1" / "index").glob("items-*.sqlite"))) == 1


def test_a_backup_is_of_one_moment_while_a_writer_goes_on(catalogue: Path, tmp_path: Path) -> None:
    """Every write adds two items that belong together; a backup has both or neither, and what was written before it."""
    written, stop = [0], threading.Event()

    def write() -> None:
        with open_catalogue(catalogue, writable=True) as opened:
            while not stop.is_set():
                number = written[0] + 1
                opened.index.upsert([f"left {number}", f"right {number}"], np.ones((2, DIM)))
                written[0] = number
                if number % 7 == 0:
                    opened.index.compact()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            before = written[0]
            back_up(catalogue, tmp_path / "out")
            names = set(ids(tmp_path / "out"))
            left, right = ({int(n.split()[1]) for n in names if n.startswith(side)} for side in ("left", "right"))
            assert left == right
            assert left == set(range(1, len(left) + 1))
            assert len(left) >= before
    finally:
        stop.set()
        writer.join()
    assert written[0] > 6


def test_wrong_places_are_refused_and_damage_is_not_copied(catalogue: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").touch()
    assert "holds other files" in command("items", "backup", catalogue, tmp_path / "photos")[1]
    assert "is inside of" in command("items", "backup", catalogue, catalogue / "backup")[1]
    assert "is not a backup" in command("items", "restore", tmp_path / "photos", tmp_path / "new")[1]
    back_up(catalogue, tmp_path / "out")
    assert "is not empty" in command("items", "restore", tmp_path / "out", catalogue)[1]
    flip(next((catalogue / "v1" / "index").glob("segment-*.vectors")), 100)
    code, said = command("items", "backup", catalogue, tmp_path / "second")
    assert (code, "does not match its checksum" in said) == (1, True)
    flip(next((tmp_path / "out" / "v1" / "index").glob("segment-*.ids")), 100)
    code, said = command("items", "restore", tmp_path / "out", tmp_path / "new")
    assert (code, "does not match its checksum" in said) == (1, True)


@pytest.mark.parametrize("broken", ["index.json", "segment-*.keys", "items-*.sqlite"])
def test_the_commands_verify_and_repair_an_index_that_can_not_be_opened(
    catalogue: Path, broken: str, command: Command
) -> None:
    (path,) = (catalogue / "v1" / "index").glob(broken)
    path.write_bytes(path.read_bytes()[:-9])
    code, said = command("items", "verify", catalogue)
    assert (code, "Version v1: " in said, "tophit items repair" in said) == (1, True, True)
    code, said = command("items", "repair", catalogue)
    assert (code, "50 items were kept" in said) == (0, True), said
    assert command("items", "verify", catalogue)[0] == 0
    assert len(ids(catalogue)) == 50


def test_every_file_of_a_catalogue_is_verified(catalogue: Path, tmp_path: Path) -> None:
    assert verify_catalogue(catalogue) == []
    files = [path for path in catalogue.rglob("*") if path.is_file() and path.stat().st_size]
    for path in [path for path in files if path.name != "lock" and not path.name.endswith("-shm")]:
        copy = tmp_path / "copy"
        shutil.copytree(catalogue, copy)
        flip(copy / path.relative_to(catalogue), 8 * (path.stat().st_size // 2))
        assert verify_catalogue(copy), path
        shutil.rmtree(copy)


def test_a_damaged_list_of_versions_is_made_again(catalogue: Path, command: Command) -> None:
    text = (catalogue / "catalogue.json").read_text()
    (catalogue / "catalogue.json").write_text(text.replace('"previous": null', '"previous": "v1"'))
    assert "does not match its checksum" in command("items", "verify", catalogue)[1]
    assert "does not match its checksum" in command("items", "info", catalogue)[1]
    assert "made again from the versions found; v1 is active" in command("items", "repair", catalogue)[1]
    assert len(ids(catalogue)) == 50


def test_a_lost_list_of_versions_is_damage_and_is_made_again(catalogue: Path, command: Command) -> None:
    (catalogue / "catalogue.json").unlink()
    code, said = command("items", "verify", catalogue)
    assert (code, "catalogue.json, which names the versions, is missing" in said) == (1, True)
    assert "made again from the versions found; v1 is active" in command("items", "repair", catalogue)[1]
    assert command("items", "verify", catalogue)[0] == 0
    assert len(ids(catalogue)) == 50


@pytest.mark.parametrize("word", ["verify", "repair"])
def test_a_folder_without_an_index_is_not_called_damaged(tmp_path: Path, word: str) -> None:
    (tmp_path / "photos").mkdir()
    for folder in (tmp_path / "nothere", tmp_path / "photos"):
        done = CliRunner().invoke(app, ["items", word, str(folder)])
        assert isinstance(done.exception, UsageError)
        assert str(done.exception).startswith(f"There is no index in {folder} ")
        assert done.output == ""


def test_an_index_alone_is_verified_and_repaired(tmp_path: Path, command: Command) -> None:
    with Index.create(tmp_path / "index", DIM) as index:
        index.upsert(["a"], np.ones((1, DIM)))
    assert command("items", "verify", tmp_path / "index")[0] == 0
    snapshot = json.loads((tmp_path / "index" / "index.json").read_text())
    (tmp_path / "index" / snapshot["database"]).write_bytes(b"")
    code, said = command("items", "verify", tmp_path / "index")
    assert (code, "damaged" in said) == (1, True)


def test_a_backup_in_a_library_call(catalogue: Path, tmp_path: Path) -> None:
    back_up(catalogue, tmp_path / "out")
    assert restore(tmp_path / "out", tmp_path / "new").versions == 1
