"""What a new user stumbled over on the command line: each is told at once, in a sentence that says what to do."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tophit.api import embed, evaluate, name, report
from tophit.cli import app
from tophit.cli.shell import console
from tophit.data.folders import open_images
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.models.exported import export_embedder
from tophit.search.catalogue import build_catalogue
from tophit.tables import metric_list, spread_sentence

SMALL = ["embedder.backbone=small", "embedder.weights=random", "embedder.size=32", "schedule.epochs=1"]
Run = Callable[..., Any]


@pytest.fixture
def tophit(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, [str(each) for each in words], catch_exceptions=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file where somebody names a folder: nothing can be written below it, even by root."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file"


def test_explain_shows_the_recipes_values_and_what_follows_from_an_override(tophit: Run) -> None:
    plain, head = (tophit("train", *words, "--explain").stdout for words in ([], ["head"]))
    for path, general, own in (
        ("embedder.dim", "128", "512"),
        ("optimizer.head.lr", "0.001", "0.0001"),
        ("batches.sampler", "balanced", "random"),
    ):
        assert f"{path} = {general} " in plain
        assert f"{path} = {own} " in head
    changed = tophit("train", "head", "--set", "loss=pnp", "--explain").stdout
    assert "loss.name = pnp " in changed
    assert "loss.variant = Dq " in changed
    assert "batches.sampler = balanced " in changed
    assert "data.manifest = (required) " in head
    assert "data.manifest = photos " in tophit("train", "head", "--data", "photos", "--explain").stdout


def test_the_list_of_recipes_is_grouped_described_and_whole_in_a_pipe() -> None:
    words = [sys.executable, "-m", "tophit.cli", "train", "--list"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "…" not in "".join(lines)
    own, paper = lines.index("For your own images, and the demo"), next(i for i, x in enumerate(lines) if "mpa: " in x)
    assert own < paper
    assert any(line.split()[:1] == ["head"] and "A frozen backbone and a trained head" in line for line in lines)
    (one,) = [line for line in lines if line.split()[:1] == ["topk/cub200"]]
    assert one.endswith("densenet201, loss topk-precision; the paper's recall@1: 61.07")
    assert max(map(len, lines)) > 100


def test_a_papers_recipe_says_that_it_takes_other_images_too(tophit: Run, pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(TophitError, match=r"images\.txt.* on your own images: --set data\.set=null with a folder of"):
        tophit("train", "topk/cub200", "--data", pictures, "--run", tmp_path / "run")


def test_three_class_folders_are_told_how_they_were_divided(tophit: Run, pictures: Path, tmp_path: Path) -> None:
    for kind in range(3):
        shutil.copytree(pictures / f"class {kind}", tmp_path / "three" / f"class {kind}")
    with pytest.raises(TophitError, match=r"has 3 classes: 1 for training, 2 for testing\. .*--set data\.test_share="):
        tophit("train", "head", "--data", tmp_path / "three", "--run", tmp_path / "run")


def test_data_of_one_class_do_not_pass_the_check(tophit: Run, pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(pictures / "class 1", tmp_path / "one" / "class 1")
    done = tophit("data", "check", tmp_path / "one")
    assert done.exit_code == 1
    assert "6 images of 1 class:" in done.stdout
    assert "too few classes 1" in done.stdout


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["train", "head", "--data", "PICTURES", "--run", "FILE/run"], "--run"),
        (["index", "PICTURES", "--run", "small", "--out", "FILE/index"], "--out"),
        (["embed", "PICTURES", "--run", "small", "--out", "FILE/vectors"], "--out"),
        (["evaluate", "small", "--data", "PICTURES", "--out", "FILE/evaluation"], "--out"),
        (["export", "small", "--out", "FILE/small.onnx"], "--out"),
        (["compare", "--preset", "quick", "--data", "PICTURES", "--out", "FILE/comparison"], "--out"),
    ],
)
def test_what_cant_be_written_is_told_before_any_image_is_read(
    tophit: Run, pictures: Path, file: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], option: str
) -> None:
    def never(*arguments: object, **options: object) -> None:
        raise AssertionError("an image was read")

    monkeypatch.setattr("tophit.data.dataset.read_image", never)
    words = [word.replace("PICTURES", str(pictures)).replace("FILE", str(file)) for word in command]
    with pytest.raises(UsageError, match=rf"{option}: {file} is a file, not a folder; name another folder"):
        tophit(*words)


def test_a_cache_that_cant_be_written_names_the_variable(
    tophit: Run, pictures: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPHIT_CACHE", str(file / "cache"))
    for command in (["train", "head", "--data"], ["index"]):
        last = ["--run", "small", "--out", tmp_path / "index"] if command == ["index"] else ["--run", tmp_path / "run"]
        with pytest.raises(UsageError, match=r"TOPHIT_CACHE"):
            tophit(*command, pictures, *last)


def test_vectors_go_to_a_folder_and_a_files_name_is_refused(tophit: Run, pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"not to a file: --out {tmp_path / 'vectors'}$"):
        tophit("embed", pictures, "--run", "small", "--out", tmp_path / "vectors.npz")
    assert not list(tmp_path.iterdir())


def test_a_manifest_is_not_overwritten_unless_asked(tophit: Run, pictures: Path, tmp_path: Path) -> None:
    table = tmp_path / "m.csv"
    table.write_text("edited by hand")
    with pytest.raises(UsageError, match=r"m\.csv exists; name another file, or add --overwrite"):
        tophit("data", "folder", pictures, "--out", table)
    assert table.read_text() == "edited by hand"
    tophit("data", "folder", pictures, "--out", table, "--overwrite")
    assert table.read_text().startswith("path,label,split")


MISTAKES = [
    "train head --data x --run y --set embedder.backbone=resnet",
    "train head --data nothing --run y",
    "train head --data x --run y --set loss=profs",
    "index nothing --run small --out y",
    "embed nothing --run small --out y",
    "evaluate nothing --data .",
    "evaluate small --data nothing",
    "evaluate small --data . --against nothing",
    "report nothing",
    "compare",
    "compare nothing.yaml --out y",
    "compare nothing --worker",
    "compare --preset nothing --data . --out y",
    "compare --preset quick --data nothing --out y",
    "export nothing --out y.onnx",
    "export small --out y.txt",
]


# With a model of 8 numbers, an index that it made, and a finished run whose data have moved; and what each is told.
MISTAKES_WITH_A_MODEL = {
    "evaluate model --data pictures --metric recal@3": "Did you mean 'recall'?",
    "evaluate model --data pictures --metric graded-ndcg": "needs a number of results",
    "evaluate model --data pictures --dim 9": "the model's vectors have 8 numbers",
    "evaluate model --data pictures --rerank foo": "There is no re-ranking 'foo'",
    "evaluate model --data pictures --protocol foo": "not 'foo'",
    "evaluate model --data pictures --jaccard 2": "--jaccard is a share",
    "evaluate model --data pictures --split foo": "The split must be",
    "evaluate model --data pictures --judgements nothere": "There are no judgements at nothere",
    "evaluate model --data pictures --judgements pictures": "pictures is a folder",
    "evaluate model": "Name the data: --data PATH",
    "evaluate moved": "If the run's data have moved: --data PATH",
    "evaluate moved --data nothere": "No data at 'nothere'",
    "evaluate moved --metric foo": "There is no metric 'foo'",
    "evaluate moved --against nothere": "'nothere' is not the folder of a run",
    "evaluate index --data pictures": "index holds no embedder",
    "report moved": "If the run's data have moved: --data PATH",
    "report moved --data nothere": "No data at 'nothere'",
    "embed pictures --run nothere --out v": "'nothere' is not the folder of a run",
    "embed pictures --run model --out v --runtime foo": "There is no runtime 'foo'; choices: onnxruntime",
    "embed pictures --run model --out v --device foo": "There is no device 'foo'; choices: auto, cpu, cuda",
    "embed pictures --run model --out v --precision foo": "There is no precision 'foo'",
    "embed pictures --run model --out v --runtime onnxruntime --precision bf16": "supports fp32, not bf16",
    "embed pictures --run model --out v --split foo": "The split must be",
    "index pictures --run nothere --out i": "'nothere' is not the folder of a run",
    "index pictures --run model --out i --kind foo": "no kind of index 'foo'; choices: auto, flat, ivf, pq, hnsw",
    "index pictures --run model --out i --backend pgvector --dsn host=x --kind pq": "choices: exact, hnsw",
    "index pictures --run model --out i --backend milvus": "needs an address: --uri",
    "index pictures --run model --out i --backend foo": "There is no search backend 'foo'",
    "index pictures --run model --out i --split foo": "The split must be",
    "index pictures --run model --out i --dim 9999": "a shorter one has 1 to 8, not 9999",
    "index pictures --run model --out i --uri x --dsn y": "give either --uri or --dsn",
    "train head --data pictures --run r --set device=foo": "There is no device 'foo'; choices: auto, cpu, cuda",
    "index --from nothere --run model --out i": "There are no vectors in nothere",
    "index pictures --run model --out i --memory 500MB --backend milvus": "--memory: only for the local backend",
    "serve index --run nothere": "'nothere' is not the folder of a run",
    "serve index --certificate x": "TLS needs both --certificate and --key",
    "serve index --certificate x --key y": "can't be used",
    "items reembed index --run nothere": "'nothere' is not the folder of a run",
    "items reembed nothere --run model": "There is no index in nothere",
    "calibrate nothere": "There is no run, embedder or index in 'nothere'",
    "calibrate pictures": "pictures holds no embedder",
    "calibrate small": "'small' is no folder that could keep a calibration",
    "calibrate index --data nothere": "No data at 'nothere'",
    "search index nothere.png": "There is no picture nothere.png",
    "search index pictures": "pictures is a folder; name a picture",
    "search index nothere.png --text red": "There is no picture nothere.png",
    "search nothere nothere.png": "There is no index in nothere",
    "name nothere nothere.png": "There is no index in nothere",
    "name index nothere.png": "There is no picture nothere.png",
}
MISTAKES_IN_AN_INDEX = {  # which is opened to tell them
    "search index --like nothere.png": "neither the id of an item",
    "search index --id nope": "The index has no item 'nope'",
    "search index --text red": "This model takes no words",
}


@pytest.fixture(scope="module")
def beginnings(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures, a model, its index, and a finished run whose data have moved."""
    folder = tmp_path_factory.mktemp("beginnings")
    for kind in range(2):
        shutil.copytree(pictures / f"class {kind}", folder / "pictures" / f"class {kind}")
    embedder = build_embedder("small", "random", dim=8, size=32)
    embedder.save(folder / "model")
    build_catalogue(embedder, open_images(str(folder / "pictures")).rows, folder / "index")[0].close()
    embedder.save(folder / "moved" / "best")
    (folder / "moved" / "recipe.yaml").write_text("data: {manifest: /gone}\nembedder: {backbone: small}\n")
    (folder / "moved" / "result.json").write_text("{}")
    return folder


def told_at_once(mistakes: Mapping[str, str], folder: Path, without: tuple[str, ...] = ("torch", "faiss")) -> None:
    """Check what wrong commands are told in a folder, one after another in one process, and that they begin nothing."""
    before = sorted(folder.iterdir())
    code = (
        "import sys\n"
        "from tophit.cli import app\n"
        "from tophit.errors import UsageError\n"
        f"for words, told in {dict(mistakes)!r}.items():\n"
        "    try: app(words.split())\n"
        "    except UsageError as error: assert told in str(error), (words, str(error))\n"
        "    else: raise AssertionError(f'{words}: nothing was told')\n"
        f"    slow = {{'onnxruntime', *{without}}} & set(sys.modules)\n"
        "    assert not slow, (words, slow)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert sorted(folder.iterdir()) == before


def test_simple_mistakes_are_told_without_waiting_for_torch(tmp_path: Path) -> None:
    told_at_once(dict.fromkeys(MISTAKES, ""), tmp_path)


def test_mistakes_with_a_model_are_told_without_waiting_for_torch(beginnings: Path) -> None:
    told_at_once(MISTAKES_WITH_A_MODEL, beginnings)
    told_at_once(MISTAKES_IN_AN_INDEX, beginnings, without=("torch",))


def test_wrong_use_of_a_command_exits_with_2_after_one_sentence(beginnings: Path) -> None:
    words = [sys.executable, "-m", "tophit.cli", "search", "index", "nothere.png"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=beginnings)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "Error: There is no picture nothere.png.\n")


def test_functions_tell_wrong_use_as_commands_do(beginnings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(beginnings)
    for call, said in (
        (lambda: embed("pictures", "nothere"), "'nothere' is not the folder of a run"),
        (lambda: embed("pictures", "model", device="foo"), "no device 'foo'"),
        (lambda: evaluate("model", "pictures", dims=[9]), "have 8 numbers"),
        (lambda: evaluate("moved"), "data have moved"),
        (lambda: name("index", ["nothere.png"]), "no picture nothere.png"),
        (lambda: report("moved"), "data have moved"),
    ):
        with pytest.raises(UsageError, match=said):
            call()


def test_an_index_that_could_not_be_made_leaves_no_folder(tophit: Run, beginnings: Path, tmp_path: Path) -> None:
    words = ("index", beginnings / "pictures", "--run", beginnings / "model", "--backend", "milvus", "--out")
    (tmp_path / "own").mkdir()
    for folder in ("new", "own"):
        with pytest.raises(TophitError):
            tophit(*words, tmp_path / folder, "--uri", tmp_path / "nothing" / "here" / "x.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["own"]  # which was there before
    assert not list((tmp_path / "own").iterdir())


def test_the_help_of_index_names_the_kinds_of_each_backend(tophit: Run) -> None:
    said = " ".join(tophit("index", "--help").stdout.replace("│", " ").split())
    assert "local: auto, flat, ivf, pq, hnsw; milvus: flat, hnsw" in said


def test_a_recipe_is_explained_without_waiting_for_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tophit.cli import app\n"
        "for setting in ('schedule.epochs=7', 'loss=pnp', 'loss.name=proxy-anchor', 'method=projection'):\n"
        "    try: app(['train', 'head', '--explain', '--set', setting])\n"
        "    except SystemExit: pass\n"
        "    assert 'torch' not in sys.modules, setting\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "schedule.epochs = 7" in done.stdout
    assert re.findall(r"batches.sampler = (\w+)", done.stdout) == ["random", "balanced", "random", "balanced"]


def test_the_list_of_runs_names_their_data(
    tophit: Run, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "width", 160)
    sets = [word for setting in SMALL for word in ("--set", setting)]
    tophit("train", "head", "--data", pictures, "--run", tmp_path / "runs" / "one", *sets)
    assert pictures.name in tophit("runs", tmp_path / "runs").stdout
    assert json.loads(tophit("runs", tmp_path / "runs", "--json").stdout)[0]["data"] == str(pictures)


def test_the_facts_of_an_index_are_for_people_and_its_json_for_programs(
    tophit: Run, pictures: Path, tmp_path: Path
) -> None:
    tophit("index", pictures, "--run", "small", "--out", tmp_path / "index")
    said = tophit("items", "info", tmp_path / "index").stdout
    assert " MB" in said
    assert "[{" not in said
    rows = [line.split("│")[1].strip() for line in said.splitlines() if "│" in line]
    assert [row for row in rows if row.endswith("version")] == ["active version"]
    assert isinstance(json.loads(tophit("items", "info", tmp_path / "index", "--json").stdout)["bytes"], int)


def test_one_number_has_one_row_and_the_spread_invites_no_wrong_comparison() -> None:
    table = metric_list({"recall@1": 0.5, "recall@2": 0.6, "precision@1": 0.5, "precision@5": 0.4}, {})
    assert list(table.columns[0].cells) == ["recall@1 = precision@1", "recall@2", "precision@5"]
    said = spread_sentence({"intra": 0.511, "inter": 0.471})
    assert "0.511" in said
    assert "compare each with another model's" in said


def test_an_exports_description_is_enough_to_prepare_a_picture(tmp_path: Path) -> None:
    """The rule in words, carried out with Pillow, gives the input that the model gets."""
    import numpy as np
    from PIL import Image

    embedder = build_embedder("small", "random", dim=8, size=32, crop=0.8).eval()
    described = json.loads(export_embedder(embedder, tmp_path / "m.onnx").description.read_text())
    assert described["resize"]["filter"] == "bicubic"
    assert (
        "Cut out its centre, a square of 0.8 of the short side, rounded to whole pixels." in described["resize"]["rule"]
    )
    noise = np.random.default_rng(0).integers(0, 256, (60, 100, 3), np.uint8)
    side, (height, width) = round(0.8 * 60), noise.shape[:2]
    left, top = (width - side) // 2, (height - side) // 2
    part = Image.fromarray(noise).crop((left, top, left + side, top + side)).resize((32, 32), Image.Resampling.BICUBIC)
    fields = described["preprocessing"]
    expected = ((np.asarray(part) / 255 - fields["mean"]) / fields["std"]).transpose(2, 0, 1)
    given = embedder.preprocessing(Image.fromarray(noise))
    assert np.abs(given - expected).max() < 2.5 / 255 / min(fields["std"])


def test_a_shell_completes_the_names_of_recipes() -> None:
    environment = {"_TOPHIT_COMPLETE": "complete_bash", "COMP_WORDS": "tophit train topk/c", "COMP_CWORD": "2"}
    code = "import sys; from tophit.cli import main; sys.argv = ['tophit']; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["topk/cars196", "topk/cub200"], done.stderr
