"""``tophit index`` on an index that exists: what its next compaction can change is changed, all else is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tophit.cli import app
from tophit.errors import UsageError
from tophit.models import build_embedder
from tophit.search import Index
from tophit.search.catalogue import build_catalogue
from tophit.search.reembed import reembed
from tophit.search.versions import IndexOptions, check_options

DIM, COUNT = 8, 200
Tophit = Callable[..., str]


@pytest.fixture
def tophit(monkeypatch: pytest.MonkeyPatch) -> Tophit:
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> str:
        return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False).stdout

    return run


@pytest.fixture
def common(tmp_path: Path) -> tuple[object, ...]:
    """The words of a command that makes or extends an index of features."""
    vectors = np.random.default_rng(0).normal(size=(COUNT, DIM)).astype(np.float32)
    names = np.array([f"{i}.png" for i in range(COUNT)])
    np.savez(tmp_path / "f.npz", features=vectors, labels=np.arange(COUNT) % 5, names=names)
    build_embedder(f"features/{DIM}").save(tmp_path / "embedder")
    return ("index", tmp_path / "f.npz", "--run", tmp_path / "embedder", "--out", tmp_path / "mine")


def facts(tophit: Tophit, folder: object) -> dict[str, Any]:
    return json.loads(tophit("items", "info", folder, "--json"))


def test_a_budget_a_kind_and_a_recall_count_from_the_next_compaction(
    tophit: Tophit, common: tuple[object, ...]
) -> None:
    tophit(*common)
    tophit(*common, "--memory", "700MB", "--kind", "pq", "--recall", 0.9)
    told = facts(tophit, common[-1])
    assert (told["budget"]["memory"], told["kind_wanted"], told["recall_target"]) == (7e8, "pq", 0.9)
    tophit(*common, "--build", "1min")  # the rest stays
    told = facts(tophit, common[-1])
    assert (told["budget"], told["kind_wanted"]) == ({"memory": 7e8, "build": 60.0}, "pq")
    with Index.open(Path(str(common[-1])) / "v1" / "index", writable=True, exact_below=100) as index:
        index.compact()
        assert index.stats()["kind"] == "pq"
    tophit(*common, "--kind", "hnsw")
    assert facts(tophit, common[-1])["kind"] == "hnsw"


def test_a_budget_stays_where_there_is_nothing_to_merge(tophit: Tophit, common: tuple[object, ...]) -> None:
    tophit(*common)
    before = facts(tophit, common[-1])
    tophit("items", "compact", common[-1], "--memory", "500MB", "--build", "2min")
    told = facts(tophit, common[-1])
    assert (told["budget"], told["count"], told["kind"]) == ({"memory": 5e8, "build": 120.0}, COUNT, "flat")
    assert told["segments"] == before["segments"]
    tophit("items", "compact", common[-1], "--memory", "500MB")
    assert facts(tophit, common[-1])["version"] == told["version"]  # nothing was written
    assert "No problems found" in tophit("items", "verify", common[-1])


def test_a_kind_that_few_items_do_not_need_is_said(tophit: Tophit, common: tuple[object, ...]) -> None:
    said = " ".join(tophit(*common, "--kind", "pq").split())
    assert "Fewer than 50,000 items are searched exactly: --kind pq counts from there on." in said
    assert "searched exactly" not in tophit(*common, "--kind", "flat")
    said = " ".join(tophit(*common, "--kind", "ivf", "--recall", 1).split())
    assert "A recall of 1 needs an exact search: --kind ivf counts only with a lower --recall." in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--backend", "milvus", "--uri", "x.db"), r"with --backend local: leave --backend and --uri out, or make"),
        (("--uri", "x.db"), r"leave --uri out"),
        (("--name", "other"), r"leave --name out"),
        (("--kind", "foo"), r"no kind of index 'foo'; choices: auto"),
        (("--memory", "much"), r"memory is a number with its unit"),
    ],
)
def test_what_an_index_can_not_become_is_refused(
    words: tuple[str, ...], message: str, tophit: Tophit, common: tuple[object, ...]
) -> None:
    tophit(*common)
    before = facts(tophit, common[-1])
    with pytest.raises(UsageError, match=message):
        tophit(*common, *words, "--build", "1min")
    assert facts(tophit, common[-1]) == before


def test_an_index_on_a_server_takes_the_same_words_again_and_no_others(tmp_path: Path) -> None:
    location, model, folder = str(tmp_path / "x.db"), build_embedder(f"features/{DIM}"), tmp_path / "mine"
    rows = np.random.default_rng(0).normal(size=(4, DIM)).astype(np.float32)
    np.savez(tmp_path / "f.npz", features=rows, labels=np.arange(4), names=np.array([f"{i}.png" for i in range(4)]))
    from tophit.data.folders import open_images

    images = open_images(str(tmp_path / "f.npz")).rows
    options = IndexOptions("milvus", location, "shop", "flat")
    for _ in range(2):
        build_catalogue(model, images, folder, options=options)[0].close()
    for wrong, message in (
        (IndexOptions("pgvector"), "--name shop, --kind flat: leave --backend out"),
        (IndexOptions(location="http://elsewhere"), "leave --uri out"),
        (IndexOptions(name="other", kind="hnsw"), "leave --name and --kind out"),
        (IndexOptions(memory="1GB"), "--memory: only for the local backend, not for milvus"),
        (IndexOptions(recall=0.9), "--recall tunes the local backend"),
    ):
        with pytest.raises(UsageError, match=message):
            check_options(folder, wrong)
        with pytest.raises(UsageError, match=message):
            build_catalogue(model, images, folder, options=wrong)
    check_options(folder, IndexOptions(kind="FLAT"))


@pytest.mark.parametrize("words", [("--uri", "http://x"), ("--dsn", "host=x"), ("--name", "x")])
def test_an_address_without_a_server_is_refused(
    words: tuple[str, str], tophit: Tophit, common: tuple[object, ...]
) -> None:
    with pytest.raises(UsageError, match=r"The local backend .* name another --backend \(milvus, pgvector\)"):
        tophit(*common, *words)
    assert not Path(str(common[-1])).exists()


def test_a_version_beside_one_in_a_folder_is_made_alike(tophit: Tophit, common: tuple[object, ...]) -> None:
    tophit(*common, "--memory", "1GB")
    said = tophit("items", "compact", common[-1], "--kind", "pq", "--recall", 0.9)
    assert "--kind pq counts from there on" in " ".join(said.split())
    made = reembed(Path(str(common[-1])), build_embedder(f"features/{DIM}", dim=4))
    tophit("items", "switch", common[-1], made.version)
    told = facts(tophit, common[-1])
    assert (told["budget"]["memory"], told["kind_wanted"], told["recall_target"]) == (1e9, "pq", 0.9)
