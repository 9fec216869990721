"""Searches that would silently find something else: boxes, filters and ids that do not fit."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from tophit.cli import app
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.search.catalogue import open_catalogue

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def index(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    build_embedder("small", "random", dim=8, size=32).save(folder / "model")
    words = ["index", pictures, "--run", folder / "model", "--out", folder / "index"]
    CliRunner().invoke(app, [str(each) for each in words], catch_exceptions=False)
    return folder / "index"


@pytest.fixture
def search(index: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: object) -> Any:
        return CliRunner().invoke(app, ["search", str(index), *(str(each) for each in words)], catch_exceptions=False)

    return run


def test_a_box_beyond_the_picture_is_refused_with_the_pictures_size(search: Run, tmp_path: Path) -> None:
    Image.new("RGB", (64, 48), "red").save(tmp_path / "photo.jpg")
    with pytest.raises(
        UsageError, match=r"0,0,1000,1000 reaches beyond .*photo\.jpg, which has 64x48 pixels; at most 0,0,64,48"
    ):
        search(tmp_path / "photo.jpg", "--box", "0,0,1000,1000")
    whole, box = (search(tmp_path / "photo.jpg", *each).stdout for each in ([], ["--box", "0,0,64,48"]))
    assert whole.split("rank")[1] == box.split("rank")[1]


@pytest.mark.parametrize("where", ["lable=class 1", "lable!=class 1"])
def test_a_field_that_no_item_has_is_an_error(search: Run, pictures: Path, where: str) -> None:
    with pytest.raises(UsageError, match=r"No item has a field 'lable'\. Did you mean 'label'\? Fields: label, path"):
        search(pictures / "class 1" / "0.png", "--where", where)


def test_a_value_that_no_item_has_is_told_with_those_there_are(search: Run, pictures: Path) -> None:
    done = search(pictures / "class 1" / "0.png", "--where", "label=clas 1")
    assert done.exit_code == 0
    assert "No item meets the filter. Values of label: class 0, class 1, class 2" in done.stderr


def test_info_tells_the_same_of_fields_and_values(index: Path) -> None:
    def info(where: str) -> Any:
        words = ["items", "info", str(index), "--json", "--where", where]
        return CliRunner().invoke(app, words, catch_exceptions=False)

    with pytest.raises(UsageError, match=r"No item has a field 'lable'\. Did you mean 'label'\? Fields: label, path"):
        info("lable=class 1")
    done = info("label=clas 1")
    assert json.loads(done.stdout)["matching"] == 0
    assert "No item meets the filter. Values of label: class 0, class 1, class 2" in done.stderr
    assert json.loads(info("label=class 1").stdout)["matching"] == 6


def test_items_are_deleted_by_the_names_that_search_takes_all_or_none(
    index: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copy = shutil.copytree(index, tmp_path / "copy")
    monkeypatch.setenv("COLUMNS", "200")

    def delete(*names: object) -> str:
        words = ["items", "delete", copy, *names]
        return CliRunner().invoke(app, [str(each) for each in words], catch_exceptions=False).stdout

    def count() -> int:
        with open_catalogue(copy) as catalogue:
            return len(catalogue.index)

    monkeypatch.chdir(pictures)
    one, two, three = (f"class {kind}/{kind}.png" for kind in range(3))
    with pytest.raises(UsageError, match=r"Not in the index: a, b, c, d, e and 1 more\. Nothing was deleted"):
        delete(one, *"abcdef")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"'2\.png' is the end of 8 ids, such as .* write more"):
        delete(pictures / one, "2.png")
    assert count() == 48
    monkeypatch.chdir(pictures)
    assert f"{one}: {pictures / one}\n1 item deleted" in delete(one, pictures / one)
    monkeypatch.chdir(tmp_path)
    assert f"{two}: {pictures / two}\n2 items deleted" in delete(two, pictures / three)
    assert count() == 45
    with open_catalogue(copy) as catalogue:
        assert catalogue.index.get([str(pictures / name) for name in (one, two, three)]) == [None] * 3


def test_a_list_of_duplicates_that_can_not_be_written_is_refused_at_once(index: Path, tmp_path: Path) -> None:
    words = ["items", "duplicates", str(index), "--out", str(tmp_path / "missing" / "x.csv")]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, UsageError)
    assert "--out: there is no folder" in str(done.exception)
    assert "near-duplicates" not in done.output  # nothing was compared


def test_an_item_is_named_by_a_path_from_the_working_folder_or_the_end_of_its_id(
    search: Run, pictures: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = search("--id", pictures / "class 3" / "2.png").stdout.split("rank")[1]
    monkeypatch.chdir(pictures / "class 3")
    assert search("--id", "2.png").stdout.split("rank")[1] == whole
    monkeypatch.chdir(tmp_path)
    assert search("--id", "class 3/2.png").stdout.split("rank")[1] == whole
    assert search("--like", "class 3/2.png").exit_code == 0
    with pytest.raises(UsageError, match=r"'2\.png' is the end of 8 ids, such as .* write more"):
        search("--id", "2.png")
    with pytest.raises(TophitError, match=r"The index has no item 'class 9/2\.png'"):
        search("--id", "class 9/2.png")
