"""Searches that would silently find something else: boxes, filters and ids that do not fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from tophit.cli import app
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder

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
