"""Files that older versions wrote are read by this one and mean the same: runs, recipes, embedders, indexes, and more.

tests/fixtures/make_formats.py made them with the code of 8f42a63 and says what they are. Everything is opened as users
open it: by the command line, and by the few names of the library that are promised.
"""

import gzip
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file
from typer.testing import CliRunner

import tophit
from tophit.cli import app
from tophit.recipe import read_recipe, recipe_names, table_rows, variant_names
from tophit.search import Index
from tophit.search.catalogue import open_catalogue
from tophit.training import Run, resume

FORMATS = Path(__file__).parent / "fixtures" / "formats"
RUNS = ("proxies", "projection", "generation", "network")
EXPECTED: dict[str, Any] = json.loads((FORMATS / "expected.json").read_text(encoding="utf-8"))
RECIPES: dict[str, Any] = json.loads(gzip.decompress((FORMATS / "recipes.json.gz").read_bytes()))
DIGITS = {"rel": 1e-5, "abs": 1e-6}  # other processors add in another order


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all the files, whole: the archive unpacked, and the placeholder in paths replaced."""
    folder = tmp_path_factory.mktemp("old") / "formats"
    shutil.copytree(FORMATS, folder)
    with tarfile.open(folder / "packed.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*.yaml"):
        path.write_text(path.read_text(encoding="utf-8").replace("@FORMATS@", str(folder)), encoding="utf-8")
    return folder


@pytest.fixture
def quick_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read YAML by the parser in C: the one in Python takes 20 seconds for all these recipes."""
    monkeypatch.setattr(yaml, "SafeLoader", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    monkeypatch.setattr(yaml, "SafeDumper", getattr(yaml, "CSafeDumper", yaml.SafeDumper))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a command in this process and return what it prints."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> str:
        return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False).stdout

    return run


def approximately(value: Any) -> Any:
    """Return nested values with every fraction compared to a few digits."""
    if isinstance(value, dict):
        return {name: approximately(each) for name, each in value.items()}
    if isinstance(value, list):
        return [approximately(each) for each in value]
    return pytest.approx(value, **DIGITS) if isinstance(value, float) else value


def numbers_in(text: str) -> list[str]:
    return re.findall(r"[-+]?\d+(?:\.\d+)?", text)


def without_time(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "seconds"}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


# Defaults of THSG's rates: they were absolute, and are multiples of the embedder's since. Written values are kept.
RATES_NOW_RELATIVE = ("classifier_lr", "generator_lr", "discriminator_lr")


def assert_holds(new: Any, old: Any, where: str = "") -> None:
    """Assert that every field of the old value is in the new one with the same value; new fields may be there too."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            assert name in new, f"{where}.{name} is gone"
            if name not in RATES_NOW_RELATIVE or new[name] is not None:
                assert_holds(new[name], value, f"{where}.{name}")
    elif isinstance(old, list) and isinstance(new, list):
        assert len(new) == len(old), where
        for number, value in enumerate(old):
            assert_holds(new[number], value, f"{where}[{number}]")
    else:
        assert new == old, where


# --- runs


@pytest.mark.parametrize("name", RUNS)
def test_an_interrupted_run_continues_to_the_end_of_the_uninterrupted_one(name: str, formats: Path) -> None:
    """Its metrics, its log of every step, and the weights of its best epoch, which comes after the stop."""
    stopped, whole = formats / "trained" / name / "interrupted", formats / "trained" / name / "finished"
    expected = read_json(whole / "result.json")
    assert len(log_of(stopped)) < len(log_of(whole))
    result = resume(stopped)
    assert_holds(read_json(stopped / "result.json"), approximately(without_time(expected)))
    assert result["test"] == approximately(expected["test"])
    assert_holds(log_of(stopped), approximately(log_of(whole)))
    for path in (whole / "best").glob("*.safetensors"):
        old, new = load_file(path), load_file(stopped / "best" / path.name)
        assert new.keys() == old.keys()
        for tensor, values in old.items():
            np.testing.assert_allclose(new[tensor], values, rtol=1e-4, atol=1e-6, err_msg=f"{path.name}: {tensor}")
    assert read_json(stopped / "best" / "embedder.json") == read_json(whole / "best" / "embedder.json")


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_tells_its_result_and_gives_its_embedder(name: str, formats: Path) -> None:
    folder = formats / "trained" / name / "finished"
    assert resume(folder) == read_json(folder / "result.json")
    assert Run(folder).result() == read_json(folder / "result.json")
    assert_holds(yaml.safe_load(Run(folder).recipe().to_yaml()), yaml.safe_load((folder / "recipe.yaml").read_text()))
    state = tophit.load(folder).state_dict()
    for tensor, values in load_file(folder / "best" / "weights.safetensors").items():
        np.testing.assert_array_equal(state[tensor].numpy(), values)


def test_a_finished_run_measures_the_same_again(formats: Path, tmp_path: Path, command: Callable[..., str]) -> None:
    folder = formats / "trained" / "proxies" / "finished"
    data = formats / "data" / "features.npz"
    done = command("evaluate", folder, "--data", data, "--json", "--out", tmp_path)
    expected = read_json(folder / "result.json")["test"]
    assert_holds(json.loads(done[done.index("{") :])["metrics"], approximately(expected))


def test_runs_are_listed(formats: Path, tmp_path: Path, tophit: Callable[..., Any]) -> None:
    """By the command line in a process of its own."""
    for name in RUNS:
        for state in ("finished", "interrupted"):
            (tmp_path / name / state).mkdir(parents=True)
            for file in (formats / "trained" / name / "finished").glob("*.*"):
                if state == "finished" or file.name != "result.json":
                    shutil.copy(file, tmp_path / name / state)
    found = {
        Path(run["run"]).relative_to(tmp_path).parts: run
        for run in json.loads(tophit("runs", tmp_path, "--json").stdout)
    }
    assert len(found) == 2 * len(RUNS)
    for name in RUNS:
        run, stopped = found[name, "finished"], found[name, "interrupted"]
        result = read_json(tmp_path / name / "finished" / "result.json")
        assert (run["state"], run["test"], run["step"]) == ("finished", result["test"], result["steps"])
        assert (run["best"], run["epoch"]) == (result["validation"]["MAP@R"], 4)
        assert (stopped["state"], stopped["best"]) == ("stopped", run["best"])


# --- recipes


@pytest.mark.usefixtures("quick_yaml")
def test_every_recipe_that_ships_has_its_name_and_its_fields() -> None:
    assert set(RECIPES["shipped"]) <= {*recipe_names(), *variant_names(), *table_rows()}
    for name, text in RECIPES["shipped"].items():
        assert_holds(yaml.safe_load(read_recipe(name, data="photos").to_yaml()), yaml.safe_load(text), name)


@pytest.mark.usefixtures("quick_yaml")
def test_every_written_recipe_is_read_with_the_same_values(tmp_path: Path) -> None:
    """Those of every loss, miner and method."""
    path = tmp_path / "recipe.yaml"
    for text in [*(kind["resolved"] for kind in RECIPES["kinds"]), *RECIPES["shipped"].values()]:
        path.write_text(text, encoding="utf-8")
        fields = yaml.safe_load(text)
        sections = (fields[part]["name"] for part in ("loss", "miner", "method"))
        assert_holds(yaml.safe_load(read_recipe(path).to_yaml()), fields, " ".join(sections))


@pytest.mark.usefixtures("quick_yaml")
@pytest.mark.parametrize("kind", RECIPES["kinds"], ids=lambda kind: json.dumps({**kind["given"], "data": ""}))
def test_a_short_recipe_has_the_same_defaults(kind: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(kind["given"]), encoding="utf-8")
    assert_holds(yaml.safe_load(read_recipe(path).to_yaml()), yaml.safe_load(kind["resolved"]))


# --- embedders


@pytest.mark.parametrize("name", EXPECTED["embedders"])
def test_an_embedder_gives_the_same_vectors(name: str, formats: Path) -> None:
    """And it has the same fingerprint, by which indexes and exports know it."""
    if name == "every-field":
        pytest.importorskip("transformers")
    expected = EXPECTED["embedders"][name]
    embedder = tophit.load(formats / "embedders" / name)
    assert (embedder.architecture, embedder.trained) == (expected["architecture"], expected["trained"])
    assert embedder.fingerprint() == expected["fingerprint"] == expected["export"]["fingerprint"]
    assert_holds(json.loads(json.dumps(embedder.describe()["preprocessing"])), expected["export"]["preprocessing"])
    vectors = embedder.encode([formats / path for path in expected["pictures"]])
    np.testing.assert_allclose(vectors, expected["vectors"], atol=1e-5)


def test_the_embedder_of_every_field_has_them_all() -> None:
    added = {"learn_p", "levels", "layer_norm", "config"}
    assert added <= set(EXPECTED["embedders"]["every-field"]["architecture"])


# --- indexes


def assert_finds(index: Index, expected: dict[str, Any]) -> None:
    """Assert that an index holds and finds what the old code found in it."""
    assert (len(index), index.fingerprint) == (expected["count"], expected["fingerprint"])
    stats = index.stats()
    assert (stats["kind"], stats["delta"]) == (expected["kind"], expected["delta"])
    for name, where in (("hits", None), ("filtered", expected["where"])):
        found = index.search(expected["query"], k=8, where=where)[0]
        plain = [{"id": hit.id, "score": hit.score, "metadata": hit.metadata} for hit in found]
        assert plain == approximately(expected[name])
    assert not any(index.get(expected["gone"])) if expected["gone"] else True
    assert not index.verify()


def test_an_index_of_a_feature_file(formats: Path, tmp_path: Path, command: Callable[..., str]) -> None:
    """With a segment, rows and deletions after it; it can be searched by an item, and grows."""
    folder = tmp_path / "index"
    shutil.copytree(formats / "index" / "features", folder)
    expected = EXPECTED["indexes"]["features"]
    with open_catalogue(folder) as catalogue:
        assert_finds(catalogue.index, expected)
        ids = [item.id for item in catalogue.index.items()]
        assert sum(name.endswith("#17") for name in ids) == 1
    name = next(hit["id"] for hit in expected["hits"] if "#" in hit["id"])
    (answer,) = json.loads(command("search", folder, "--id", name, "--k", 3, "--json"))
    assert len(answer["results"]) == 3
    assert "1 item deleted" in command("items", "delete", folder, name)
    command("items", "compact", folder)
    with open_catalogue(folder) as catalogue:
        assert len(catalogue.index) == expected["count"] - 1
        assert not catalogue.index.get([name])[0]


def test_an_index_of_images_in_two_versions(formats: Path, tmp_path: Path, command: Callable[..., str]) -> None:
    """It was copied while a writer had it open, as a crash leaves it; boxes are part of ids and metadata."""
    folder = tmp_path / "index"
    shutil.copytree(formats / "index" / "images", folder)
    expected = EXPECTED["indexes"]["images"]
    (log,) = (folder / "v2" / "index").glob("*-wal")
    assert log.stat().st_size > 0
    with open_catalogue(folder) as catalogue:
        assert_finds(catalogue.index, expected["v2"])
        with_box = [item for item in catalogue.index.items() if item.id.endswith("#2,3,20,22.5")]
        assert [item.metadata["box"] for item in with_box] == 8 * [[2.0, 3.0, 20.0, 22.5]]
        own = formats / "data" / "pictures" / "class 2" / "1.png"
        best = catalogue.search([own], k=1)[0][0]
        assert Path(best.id).parts[-2:] == ("class 2", "1.png")
        assert best.score == pytest.approx(1, abs=1e-5)
    assert "Version v1 is active again" in command("items", "rollback", folder)
    with open_catalogue(folder) as catalogue:
        assert_finds(catalogue.index, expected["v1"])


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_an_index_with_a_graph_or_lists_of_faiss(kind: str, formats: Path, tmp_path: Path) -> None:
    shutil.copytree(formats / "index" / kind, tmp_path / "index")
    with Index.open(tmp_path / "index", "formats") as index:
        assert_finds(index, EXPECTED["indexes"][kind])
    with Index.open(tmp_path / "index", writable=True) as index:
        count = len(index)
        index.upsert(["new"], [[1.0] * 8])
        index.compact()
        assert len(index) == count + 1
        assert index.search([1.0] * 8, k=1)[0][0].id == "new"


# --- vectors, manifests, comparisons


def test_written_vectors_become_an_index(formats: Path, tmp_path: Path, command: Callable[..., str]) -> None:
    embedder = formats / "embedders" / "plain"
    command("index", "--from", formats / "vectors", "--run", embedder, "--out", tmp_path / "index")
    expected = EXPECTED["embedders"]["plain"]
    with open_catalogue(tmp_path / "index") as catalogue:
        assert len(catalogue.index) == EXPECTED["vectors"]["count"]
        for path, vector in zip(expected["pictures"], expected["vectors"], strict=True):
            (best,) = catalogue.index.search(vector, k=1)[0]
            assert best.metadata["path"] == best.id
            assert Path(best.id).parts[-2:] == Path(path).parts[-2:]
            assert best.metadata["label"] == Path(path).parent.name
            assert best.score == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_manifest_is_read_with_splits_roles_boxes_and_further_columns(
    suffix: str, formats: Path, tmp_path: Path, command: Callable[..., str]
) -> None:
    manifest, embedder = formats / "data" / f"pictures.{suffix}", formats / "embedders" / "plain"
    assert "32 images of 8 classes: " in command("data", "check", manifest)
    command("index", manifest, "--run", embedder, "--out", tmp_path / "index", "--split", "test")
    with open_catalogue(tmp_path / "index") as catalogue:
        items = {item.id: item.metadata for item in catalogue.index.items()}
    assert len(items) == 12
    path = formats / "data" / "pictures" / "class 6" / "3.png"
    fields = {"label": "class 6", "split": "test", "price": 63, "shop": "shop 1", "box": [2.0, 3.0, 20.0, 22.5]}
    assert_holds(items[f"{path}#2,3,20,22.5"], {"path": str(path), **fields})
    done = command("evaluate", embedder, "--data", manifest, "--json", "--out", tmp_path / "evaluation")
    assert json.loads(done[done.index("{") :])["queries"] == 3


def test_a_comparison_gives_the_same_tables_again(formats: Path, tmp_path: Path, command: Callable[..., str]) -> None:
    folder = tmp_path / "comparison"
    shutil.copytree(formats / "comparison", folder)
    written = [folder / f"comparison.{suffix}" for suffix in ("json", "csv", "md")]
    for path in written:
        path.unlink()
    command("compare", folder, "--report")
    old = formats / "comparison"
    new, before = read_json(folder / "comparison.json"), read_json(old / "comparison.json")
    assert new.pop("winner") == "Proxy Anchor"  # this and the command are newer than these files
    assert str(folder / "winner.yaml") in new.pop("command")
    assert (folder / "winner.yaml").is_file()
    assert numbers_in(new.pop("recommendation")) == numbers_in(before.pop("recommendation"))  # its words may change
    assert [row.pop("verdict") for row in new["rows"]] == ["undecided", None]  # these two are newer, too
    assert [row.pop("detectable") is None for row in new["rows"]] == [False, True]
    assert new == approximately(before)
    lines, lines_before = ((each / "comparison.md").read_text().splitlines() for each in (folder, old))
    assert [line for line in lines if line.startswith("| 1 ")] == lines_before[-2:]
    assert (folder / "comparison.html").is_file()


def test_a_comparison_goes_on_where_it_was(formats: Path, tmp_path: Path, command: Callable[..., str]) -> None:
    """A run that is missing is done again, with the settings that the old search found, and gives the old metrics."""
    folder = tmp_path / "comparison"
    shutil.copytree(formats / "comparison", folder)
    missing = folder / "results" / "Proxy-Anchor" / "seed-1.json"
    old = read_json(missing)
    missing.unlink()
    missing.with_suffix(".npz").unlink()
    command("compare", folder, "--worker")
    new = read_json(missing)
    costs = ("seconds", "processor_seconds", "peak_memory")
    measured = {name: value for name, value in old.items() if name not in costs}
    assert_holds(new, approximately(measured))
