"""Everything that is chosen by name, added from outside: the examples of CONTRIBUTING, built, installed and used."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tophit import registry
from tophit.cli import app
from tophit.errors import UsageError
from tophit.recipe import read_recipe
from tophit.registry import find, names

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
ENTRY_POINTS = {
    "losses": {"pull": "loss:Pull"},
    "miners": {"first-pairs": "miner:first_pairs"},
    "methods": {"twice": "method:Twice"},
    "samplers": {"in-order": "sampler:InOrder"},
    "backbones": {"patches": "backbone:patches"},
    "metrics": {"mrr": "metric:mrr"},
    "sets": {"two-lists": "dataset:two_lists"},
    "backends": {"json-file": "backend:JsonFile"},
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package ``outside``, made of the examples of CONTRIBUTING; return where it is."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (source / "outside").mkdir()
    (source / "outside" / "__init__.py").touch()
    for name, code in re.findall(r"```python\n# outside/(\w+)\.py\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL):
        (source / "outside" / f"{name}.py").write_text(code)
    groups = "".join(
        f'[project.entry-points."tophit.{group}"]\n'
        + "".join(f'"{name}" = "outside.{place}"\n' for name, place in points.items())
        for group, points in ENTRY_POINTS.items()
    )
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        f'[project]\nname = "outside"\nversion = "1"\n{groups}[tool.setuptools]\npackages = ["outside"]\n'
    )
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, capture_output=True)
    return target


@pytest.fixture
def outside(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the installed package visible for one test; afterwards nothing of it is left in the process."""
    monkeypatch.syspath_prepend(installed)
    yield
    for key in [key for key, entry in registry._registered.items() if entry.module.startswith("outside.")]:
        del registry._registered[key]
    for name in [name for name in sys.modules if name.partition(".")[0] == "outside"]:
        del sys.modules[name]


@pytest.fixture
def tophit(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command and return what it printed."""

    def run(*words: object) -> str:
        app([str(word) for word in words], standalone_mode=False)
        return capsys.readouterr().out

    return run


TINY = ["embedder.backbone=small", "embedder.weights=random", "embedder.size=32", "schedule.epochs=1", "log=[]"]


def sets(*overrides: str) -> list[str]:
    return [word for override in (*TINY, *overrides) for word in ("--set", override)]


@pytest.mark.usefixtures("outside")
@pytest.mark.parametrize(("group", "point"), [(g, p) for g, points in ENTRY_POINTS.items() for p in points.items()])
def test_both_names_find_the_same(group: str, point: tuple[str, str]) -> None:
    name, place = point
    kind = {"losses": "loss"}.get(group, group.removesuffix("s"))
    assert name in names(kind)
    assert find(kind, name).load() is find(kind, f"outside.{place}").load()


@pytest.mark.usefixtures("outside")
def test_options_are_checked_with_path_words_and_limits() -> None:
    def read(*overrides: str) -> object:
        return read_recipe("head", ["data.manifest=x", *overrides])

    assert read("loss.name=outside.loss:Pull").loss.margin == 0.5  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"loss\.margin: Input should be greater than 0, got -1\. How far others"):
        read("loss.name=pull", "loss.margin=-1")
    with pytest.raises(UsageError, match=r"loss\.margn: unknown key\. Did you mean 'margin'\? Choices: margin, name"):
        read("loss.name=pull", "loss.margn=1")
    with pytest.raises(UsageError, match=r"loss\.name: .*the module outside\.loss has no Push"):
        read("loss.name=outside.loss:Push")
    with pytest.raises(UsageError, match=r"miner\.name: .*can't be imported: No module named 'nowhere'"):
        read("miner.name=nowhere.at:all")
    with pytest.raises(UsageError, match=r"batches\.togeter: unknown key\. Did you mean 'together'"):
        read("batches.sampler=in-order", "batches.togeter=3")


@pytest.mark.usefixtures("outside")
def test_train_uses_loss_miner_method_sampler_and_metric(
    pictures: Path, tmp_path: Path, tophit: Callable[..., str]
) -> None:
    given = sets(
        "loss.name=outside.loss:Pull",
        "loss.margin=0.7",
        "method.name=twice",
        "method.times=3",
        "batches.sampler=outside.sampler:InOrder",
        "batches.together=8",
        "evaluation.metric=mrr",
    )
    tophit("train", "head", "--data", pictures, "--run", tmp_path / "run", *given)
    kept = read_recipe(tmp_path / "run" / "recipe.yaml")
    assert (kept.loss.name, kept.loss.margin, kept.method.times) == ("outside.loss:Pull", 0.7, 3)
    assert (kept.batches.sampler, kept.batches.together) == ("outside.sampler:InOrder", 8)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert 0 < result["test"]["mrr"] <= 1
    mined = sets("loss.name=triplet", "miner.name=outside.miner:first_pairs", "miner.most=5")
    tophit("train", "head", "--data", pictures, "--run", tmp_path / "mined", *mined)
    assert json.loads((tmp_path / "mined" / "result.json").read_text())["steps"] > 0


@pytest.mark.usefixtures("outside")
def test_a_backbone_is_trained_evaluated_and_indexed_into_a_backend(
    pictures: Path, tmp_path: Path, tophit: Callable[..., str]
) -> None:
    run, index = tmp_path / "run", tmp_path / "index"
    network = ["--set", "embedder.backbone=outside.backbone:patches", "--set", "embedder.weights=random"]
    tophit("train", "head", "--data", pictures, "--run", run, *network, "--set", "schedule.epochs=1")
    shown = tophit("evaluate", run, "--data", pictures, "--metric", "outside.metric:mrr", "--json")
    found = json.loads(shown[shown.index("{") :])
    low, high = found["intervals"]["outside.metric:mrr"]
    assert 0 <= low <= found["metrics"]["outside.metric:mrr"] <= high <= 1
    place = f"json:{tmp_path / 'items.json'}"
    tophit("index", pictures, "--run", run, "--out", index, "--backend", "outside.backend:JsonFile", "--uri", place)
    query = next(pictures.rglob("*.png"))
    first = json.loads(tophit("search", index, query, "--k", 3, "--json"))[0]["results"]
    assert (first[0]["path"], len(first)) == (str(query.absolute()), 3)


@pytest.mark.usefixtures("outside")
def test_a_set_is_read_by_its_name(pictures: Path, tmp_path: Path, tophit: Callable[..., str]) -> None:
    classes = sorted(folder for folder in pictures.iterdir() if folder.is_dir())
    for split, some in (("train", classes[:4]), ("test", classes[4:])):
        lines = [str(path) for folder in some for path in sorted(folder.iterdir())]
        (tmp_path / f"{split}.txt").write_text("\n".join(lines))
    assert "two-lists" in names("set")
    run = tmp_path / "run"
    tophit("train", "head", "--data", tmp_path, "--run", run, *sets("data.set=two-lists"))
    assert json.loads((run / "result.json").read_text())["test"]
    assert "48 images" in tophit("data", "check", f"two-lists:{tmp_path}")
