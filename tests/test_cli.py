"""The command line as a user meets it: real processes, real files, exit codes and sentences."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from conftest import draw_picture
from tophit.cli import shell

Run = Callable[..., subprocess.CompletedProcess[str]]
COMMANDS = [
    "demo",
    "train",
    "evaluate",
    "index",
    "search",
    "items info",
    "items delete",
    "items duplicates",
    "items compact",
    "items verify",
    "items repair",
    "items reembed",
    "items switch",
    "items rollback",
    "data icons",
    "data folder",
    "data query-gallery",
    "data check",
    "data cub200",
    "data vehicleid",
]


def test_help_and_import_do_without_torch() -> None:
    code = (
        "import sys, tophit, tophit.cli\n"
        "try: tophit.cli.app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'faiss', 'pyarrow', 'PIL', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Train image embeddings" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example_in_its_help(tophit: Run, command: str) -> None:
    assert f"tophit {command}" in tophit(*command.split(), "--help").stdout.split("Example")[-1]


def test_from_a_folder_of_images_to_a_search(tophit: Run, pictures: Path, tmp_path: Path) -> None:
    settings = ["embedder.backbone=small", "embedder.weights=random", "embedder.size=32", "schedule.epochs=2"]
    overrides = [word for setting in settings for word in ("--set", setting)]
    run = tmp_path / "run"
    trained = tophit("train", "head", "--data", pictures, "--run", run, *overrides)
    assert "recall@1" in trained.stdout
    evaluated = json.loads(tophit("evaluate", run, "--data", pictures, "--json").stdout)
    assert evaluated["metrics"] == pytest.approx(json.loads((run / "result.json").read_text())["test"])
    low, high = evaluated["intervals"]["recall@1"]
    assert low <= evaluated["metrics"]["recall@1"] <= high
    tophit("index", pictures, "--run", run, "--out", tmp_path / "index")
    query = pictures / "class 3" / "2.png"
    found = json.loads(tophit("search", tmp_path / "index", query, "--k", 5, "--json").stdout)
    assert found[0]["query"] == str(query)
    assert [hit["rank"] for hit in found[0]["results"]] == [1, 2, 3, 4, 5]
    assert found[0]["results"][0]["path"] == str(query)
    assert found[0]["results"][0]["label"] == "class 3"
    json.loads(tophit("search", tmp_path / "index", query, "--json", "--sheet", tmp_path / "sheet.png").stdout)
    refused = tophit("search", tmp_path / "index", query, "--sheet", tmp_path / "no folder" / "sheet.png", check=1)
    assert "sheet.png can't be written: No such file or directory." in refused.stderr.replace("\n", "")
    printed = tophit("search", tmp_path / "index", query, "--sheet", tmp_path / "sheet.png").stdout
    assert "class 3" in printed
    assert str(query) in printed.replace("\n", "")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.format == "PNG"


def test_a_folder_as_people_have_them_is_checked_and_indexed(tophit: Run, pictures: Path, tmp_path: Path) -> None:
    """A truncated JPEG, text called .png, 16 bits, CMYK, alpha, EXIF rotation, spaces and non-Latin letters."""
    folder = tmp_path / "мои фото 写真" / "things"
    folder.mkdir(parents=True)
    picture = draw_picture(1, 0, side=120)
    picture.save(folder / "cut.jpg")
    (folder / "cut.jpg").write_bytes((folder / "cut.jpg").read_bytes()[:900])
    (folder / "text.png").write_text("text")
    Image.new("I;16", (50, 40), 30_000).save(folder / "deep.png")
    picture.convert("CMYK").save(folder / "print.jpg")
    picture.convert("RGBA").save(folder / "alpha.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(folder / "rotated photo.jpg", exif=exif)
    checked = tophit("data", "check", folder.parent, "--out", tmp_path / "problems.csv", check=1)
    assert "unreadable 2" in checked.stdout
    problems = (tmp_path / "problems.csv").read_text()
    assert "cut.jpg: can't be decoded" in problems
    assert "text.png: not an image" in problems
    indexed = tophit("index", folder.parent, "--run", "small", "--out", tmp_path / "index")
    assert "4 images are in" in indexed.stdout
    assert indexed.stdout.count("Skipped row") == 2
    found = json.loads(tophit("search", tmp_path / "index", folder / "rotated photo.jpg", "--json").stdout)
    assert {Path(hit["path"]).name for hit in found[0]["results"]} == {
        "deep.png",
        "print.jpg",
        "alpha.png",
        "rotated photo.jpg",
    }
    refused = tophit("search", tmp_path / "index", folder / "cut.jpg", check=1)
    assert "cut.jpg: can't be decoded" in refused.stderr.replace("\n", " ")
    assert "Traceback" not in refused.stderr


def test_manifests_are_written_from_folders(tophit: Run, pictures: Path, tmp_path: Path) -> None:
    done = tophit("data", "folder", pictures, "--out", tmp_path / "m.parquet", "--test-share", 0.25)
    assert "48 images of 8 classes" in done.stdout
    assert "class in two splits 0" in tophit("data", "check", tmp_path / "m.parquet").stdout
    for name, kinds in (("query", (0, 1)), ("gallery", (0, 1, 2))):
        for kind in kinds:
            shutil.copytree(pictures / f"class {kind}", tmp_path / name / f"class {kind}")
    tophit("data", "query-gallery", tmp_path / "query", tmp_path / "gallery", "--out", tmp_path / "qg.csv")
    metrics = json.loads(tophit("evaluate", "small", "--data", tmp_path / "qg.csv", "--json").stdout)["metrics"]
    assert metrics["recall@1"] == 1  # every query has its copy in the gallery


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["serch"], 2, "No such command 'serch'"),
        (["train", "--run", "x"], 2, "data.manifest: needs a value"),
        (["train", "head", "--data", "nothing"], 2, "Name the folder of the new run: --run runs/NAME"),
        (["train", "--resume", "x", "--set", "seed=1"], 2, "--resume continues a run with its own recipe"),
        (["train", "head", "--data", "nothing", "--run", "x"], 2, "No data at 'nothing'"),
        (["train", "--resume", "nothing"], 2, "There is no run in nothing"),
        (["evaluate", "small", "--data", "nothing"], 2, "No data at 'nothing'"),
        (["evaluate", "small", "--data", "icons", "--split", "tset"], 2, "not 'tset'"),
        (["search", "nothing", "a.png"], 2, "There is no index in nothing"),
        (["search", "nothing", "a.png", "--k", "0"], 2, "--k"),
        (["search", "nothing", "a.png", "--box", "1,2"], 2, "--box takes four numbers"),
        (["search", "nothing", "a.png", "--where", "label"], 2, "A condition is written like"),
        (["search", "nothing", "a.png", "--rerank", "magic"], 2, "There is no re-ranking 'magic'"),
        (["index", "--run", "small", "--out", "x"], 2, "Give either images or --from"),
        (["index", "--run", "small", "--out", "x", "--from", "nothing"], 2, "There are no vectors in nothing"),
        (["items", "info", "nothing"], 2, "There is no index in nothing"),
        (["data", "folder", "nothing", "--out", "m.csv"], 2, "There is no folder nothing"),
    ],
)
def test_a_mistake_gets_one_clear_sentence_and_no_traceback(
    tophit: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = tophit(*arguments, check=code)
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_verbose_shows_the_traceback(tophit: Run) -> None:
    assert "Traceback" in tophit("search", "nothing", "a.png", "--verbose", check=2).stderr


def test_explain_prints_every_field_and_version_the_version(tophit: Run) -> None:
    explained = tophit("train", "--explain").stdout
    assert "loss.alpha = 32.0" in explained
    assert "optimizer.proxies.lr = 0.01" in explained
    assert tophit("--version").stdout.startswith("tophit 0.")


def test_an_unexpected_error_is_one_sentence_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(shell, "app", broken)
    monkeypatch.setattr(sys, "argv", ["tophit", "train"])
    with pytest.raises(SystemExit) as end:
        shell.main()
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert "Error: IndexError: list index out of range. This error is unexpected; --verbose shows where." in said
    assert "Traceback" not in said
