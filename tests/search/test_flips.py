"""One flipped bit anywhere in an index is found by verify, or changes nothing; a filter's wrong hit is noticed."""

import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from benchmarks.damage import attack, flip, make_index
from tests.search.test_damage import only

from tophit.errors import TophitError
from tophit.search import Index


def outcomes(tmp_path: Path, crashed: bool, count: int) -> Counter[str]:
    make_index(tmp_path / "sound", crashed)
    found = Counter[str]()
    for (_, outcome), number in attack(tmp_path / "sound", tmp_path / "scratch", count).items():
        found[outcome] += number
    return found


def test_every_flip_in_a_closed_index_is_found(tmp_path: Path) -> None:
    assert outcomes(tmp_path, crashed=False, count=80) == {"found": 80}


def test_no_flip_after_a_crash_goes_unnoticed_and_changes_something(tmp_path: Path) -> None:
    found = outcomes(tmp_path, crashed=True, count=80)
    assert found["WRONG"] == 0
    assert found["found"] > 40


@pytest.mark.slow
@pytest.mark.parametrize("crashed", [False, True])
def test_three_thousand_flips(tmp_path: Path, crashed: bool) -> None:
    found = outcomes(tmp_path, crashed, 3000)
    print(dict(found))
    assert found["WRONG"] == 0
    assert crashed or found["found"] == 3000


def damage_filter(folder: Path) -> None:
    """Let the table that filters ask say that an item of shop a is of shop b, as a flipped bit in it would."""
    connection = sqlite3.connect(only(folder, "items-*.sqlite"))
    connection.execute("UPDATE fields SET value = 'b' WHERE field = 'shop' AND key = (SELECT max(key) - 1 FROM items)")
    connection.commit()
    shutil.copy(only(folder, "items-*.sqlite"), folder.parent / "kept")
    shutil.copy(only(folder, "*-wal"), folder.parent / "kept-wal")
    connection.close()  # which folds the log in
    shutil.copy(folder.parent / "kept", only(folder, "items-*.sqlite"))
    shutil.copy(folder.parent / "kept-wal", folder / f"{only(folder, 'items-*.sqlite').name}-wal")


def test_a_damaged_filter_table_is_found_and_its_wrong_hits_are_noticed(tmp_path: Path) -> None:
    """With a write-ahead log there, so that the digest of the closed file can't help."""
    make_index(tmp_path / "index", crashed=True)
    damage_filter(tmp_path / "index")
    with Index.open(tmp_path / "index", writable=True) as index:
        wrong = index.verify()
        assert any("fields to filter by do not fit the items: 1 too many, 1 missing" in each for each in wrong)
        with pytest.raises(TophitError, match="does not meet the condition on 'shop'; repair it"):
            index.search(np.ones(8), k=100, where={"shop": "b"})
        index.repair()
        assert index.verify() == []
        assert {hit.metadata["shop"] for hit in index.search(np.ones(8), k=100, where={"shop": "b"})[0]} == {"b"}


def test_a_damaged_number_of_the_database_is_noticed_at_opening(tmp_path: Path) -> None:
    """A smaller last key would be given to two items."""
    make_index(tmp_path / "index", crashed=False)
    connection = sqlite3.connect(only(tmp_path / "index", "items-*.sqlite"))
    connection.execute("UPDATE facts SET value = value - 64 WHERE name = 'last_key'")
    connection.commit()
    connection.close()
    for writable in (False, True):
        with pytest.raises(TophitError, match="its numbers do not match their checksum"):
            Index.open(tmp_path / "index", writable=writable)


def test_a_damaged_vector_is_noticed_where_it_is_read(tmp_path: Path) -> None:
    make_index(tmp_path / "index", crashed=False)
    newest = max((tmp_path / "index").glob("segment-*.vectors"), key=lambda path: path.stat().st_size)
    flip(newest, 8 * 32 * 20)
    with Index.open(tmp_path / "index") as index, pytest.raises(TophitError, match="do not match their checksums"):
        list(index.items())


def test_a_repair_does_not_mix_up_vectors_whose_keys_are_damaged(tmp_path: Path) -> None:
    make_index(tmp_path / "index", crashed=False)
    with Index.open(tmp_path / "index", writable=True) as index:
        index.compact()
        index.upsert(["last"], np.ones((1, 8)))
        index.compact()  # no vector is in the log now
        before = {item.id: item.vector.tolist() for item in index.items()}
    for path in (tmp_path / "index").glob("segment-*.keys"):
        flip(path, 8 * 8 * 10 + 62)  # a very large key
        flip(path, 8 * 8 * 20)  # the key of its neighbour
    Index.repair_folder(tmp_path / "index")
    with Index.open(tmp_path / "index") as index:
        after = {item.id: item.vector.tolist() for item in index.items()}
    assert len(before) - 4 <= len(after) < len(before)
    assert after.items() <= before.items()
