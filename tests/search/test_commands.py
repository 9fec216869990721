"""The commands that look after an index, called in this process: tests/test_cli.py has processes of their own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.search.servers import place_of
from typer.testing import CliRunner

from tophit.cli import app
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder

Run = Callable[..., Any]


@pytest.fixture
def tophit(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)

    return run


def hits(done: Any) -> list[list[str]]:
    return [[hit["id"] for hit in each["results"]] for each in json.loads(done.stdout)]


def test_an_index_from_its_making_to_a_new_model_and_back(tophit: Run, pictures: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    for name, dim in (("old", 8), ("new", 12)):
        build_embedder("small", "random", dim=dim, size=32).save(tmp_path / name)
    tophit("index", pictures, "--run", tmp_path / "old", "--out", index)
    first, second, third = (pictures / f"class {i}" / "0.png" for i in range(3))
    (found,) = hits(tophit("search", index, first, "--k", 3, "--where", "label!=class 0", "--json"))
    assert not any("class 0" in name for name in found)
    both = hits(tophit("search", index, second, "--id", first, "--k", 3, "--json"))
    assert both[0][0] == str(second)
    assert str(first) not in both[1]
    examples = tophit("search", index, "--like", first, "--like", second, "--unlike", third, "--k", 5, "--json")
    assert len(hits(examples)[0]) == 5
    steps = ["--rerank", "alpha-qe", "--rerank", "k-reciprocal:k1=5,k2=2"]
    for wrong, words in (
        ([], "Say what to search for: images, --id, --text, or --like"),
        (["--unlike", first], "--unlike needs something that is wanted: images, --id, --text, or --like"),
        ([first, "--like", second], "add --together"),
        ([first, second, "--box", "0,0,1,1"], "--box crops a single picture; give exactly one image"),
    ):
        with pytest.raises(UsageError, match=words):
            tophit("search", index, *wrong)
    assert hits(tophit("search", index, first, "--box", "0,0,32,32", *steps, "--json"))[0]
    assert "active version" in tophit("items", "info", index).stdout
    assert json.loads(tophit("items", "info", index, "--json").stdout)["version in force"] == "v1"
    assert json.loads(tophit("items", "info", index, "--where", "label=class 1", "--json").stdout)["matching"] == 6
    with pytest.raises(UsageError, match=r"Not in the index: nothing\. Nothing was deleted"):
        tophit("items", "delete", index, first, "nothing")
    assert "1 item deleted" in tophit("items", "delete", index, first).stdout
    tophit("items", "compact", index)
    assert "No problems found" in tophit("items", "verify", index).stdout
    done = tophit("items", "duplicates", index, "--threshold", 0.5, "--out", tmp_path / "d.csv")
    assert "groups of near-duplicates" in done.stdout
    assert (tmp_path / "d.csv").read_text().startswith("group,id,path,label,nearest,score")
    with pytest.raises(UsageError, match=r"was made by another embedder"):
        tophit("index", pictures, "--run", tmp_path / "new", "--out", index)
    changed = tophit("items", "reembed", index, "--run", tmp_path / "new", "--switch").stdout
    assert "47 items are in version v2" in changed
    assert json.loads(tophit("items", "info", index, "--json").stdout)["dim"] == 12
    assert "Version v1 is active again" in tophit("items", "rollback", index).stdout


@pytest.mark.parametrize("backend", ["milvus", "pgvector"])
def test_an_index_in_a_server(
    backend: str, request: pytest.FixtureRequest, tophit: Run, pictures: Path, tmp_path: Path
) -> None:
    place = place_of(backend, request, tmp_path)
    build_embedder("small", "random", dim=8, size=32).save(tmp_path / "model")
    common = ["index", pictures, "--run", tmp_path / "model"]
    tophit(*common, "--out", tmp_path / "local")
    address = "--uri" if backend == "milvus" else "--dsn"
    tophit(*common, "--out", tmp_path / "remote", "--backend", backend, address, place.location, "--name", place.name)
    query = [pictures / "class 3" / "2.png", "--where", "label!=class 4", "--k", 20, "--json"]
    assert hits(tophit("search", tmp_path / "remote", *query)) == hits(tophit("search", tmp_path / "local", *query))
    with pytest.raises(TophitError, match=r"its server takes care of both"):
        tophit("items", "verify", tmp_path / "remote")


OUTSIDE = """
from pathlib import Path
from tophit.search.local.local_backend import LocalBackend

class MyBackend(LocalBackend):
    @classmethod
    def create(cls, location, dim, fingerprint, *, collection, index="any"):
        return super().create(Path(location) / f"{collection}-{index}", dim, fingerprint)

    @classmethod
    def open(cls, location, *, collection):
        (folder,) = Path(location).glob(f"{collection}-*")
        return super().open(folder, writable=True)
"""


def test_a_backend_from_outside_is_named_by_its_module_and_opened_again_by_that_name(
    tophit: Run, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside_backend.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    name, index, store = "outside_backend:MyBackend", tmp_path / "index", tmp_path / "store"
    build_embedder("small", "random", dim=8, size=32).save(tmp_path / "model")
    common = ["index", pictures, "--run", tmp_path / "model", "--out", index, "--engine", name]  # --backend's old name
    with pytest.raises(UsageError, match=r"needs an address: --uri"):
        tophit(*common)
    tophit(*common, "--uri", store, "--kind", "hnsw")
    described = json.loads((index / "catalogue.json").read_text())["versions"]["v1"]
    assert set(described.pop("files")) == {"embedder/embedder.json", "embedder/weights.safetensors"}
    assert described == {
        "engine": name,
        "location": str(store),
        "fingerprint": json.loads(tophit("items", "info", index, "--json").stdout)["fingerprint"],
        "options": {"collection": "tophit_v1"},
        "made_with": {"index": "hnsw"},
    }
    assert (store / "tophit_v1-hnsw").is_dir()
    query = pictures / "class 3" / "2.png"
    assert hits(tophit("search", index, query, "--k", 1, "--json")) == [[str(query)]]


def test_the_help_of_index_lists_the_backends(tophit: Run) -> None:
    told = " ".join(tophit("index", "--help").stdout.replace("│", " ").split())
    assert "--backend" in told
    assert "local, milvus, pgvector, or package.module:Name" in told
    assert "pgvector: exact, hnsw" in told
    assert "postgresql://user@host/database" in told
    with pytest.raises(UsageError, match=r"no search backend 'milvs'. Did you mean 'milvus'"):
        tophit("index", "icons", "--run", "small", "--out", "never", "--backend", "milvs")
