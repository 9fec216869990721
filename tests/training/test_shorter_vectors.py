"""loss.prefixes and consistency in a run; then evaluation and search by the first numbers of each vector."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.training.test_proxies import head_recipe
from typer.testing import CliRunner

import tophit
from tophit.cli import app
from tophit.errors import UsageError
from tophit.search.catalogue import open_catalogue
from tophit.training import train
from tophit.training.proxies import load_proxies
from tophit.training.run import Run


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prefixes") / "run"
    loss = {"name": "proxy-anchor", "prefixes": [2, 4]}
    train(head_recipe(pictures, loss, schedule={"epochs": 8}, consistency={"weight": 0.5}), folder)
    return folder


def test_a_run_learns_every_prefix_and_keeps_the_proxies_of_the_whole_vector(run: Path) -> None:
    log = [json.loads(line) for line in Run(run).log_path.read_text().splitlines()]
    values = [line["loss"] for line in log if "loss" in line]
    assert values[-1] < values[0]
    checkpoint = Run(run).load_checkpoint()
    assert checkpoint is not None
    lengths = [value.shape[-1] for name, value in checkpoint["method"]["loss"].items() if name.endswith("proxies")]
    assert lengths == [2, 4, 8]
    assert load_proxies(run).vectors.shape[-1] == 8


def test_the_shorter_embedder_is_the_prefix_normalised(run: Path, pictures: Path, tmp_path: Path) -> None:
    whole = tophit.load(run)
    short = whole.shortened(4)
    images = sorted(pictures.rglob("*.png"))[:5] or sorted(pictures.rglob("*.jpg"))[:5]
    prefix = whole.encode(images)[:, :4]
    expected = prefix / np.linalg.norm(prefix, axis=1, keepdims=True)
    np.testing.assert_allclose(short.encode(images), expected, atol=1e-6)
    short.save(tmp_path / "short")
    np.testing.assert_allclose(tophit.load(tmp_path / "short").encode(images), expected, atol=1e-6)
    with pytest.raises(UsageError, match="a shorter one has 1 to 8, not 9"):
        whole.shortened(9)


def test_evaluate_shows_what_each_length_costs(run: Path) -> None:
    done = CliRunner().invoke(app, ["evaluate", str(run), "--dim", "4", "--dim", "2", "--json"])
    assert done.exit_code == 0, done.output
    lengths = json.loads(done.stdout)["lengths"]
    assert [each["dim"] for each in lengths] == [8, 4, 2]
    assert [each["megabytes_per_million"] for each in lengths] == [32, 16, 8]
    own = tophit.evaluate(run, dims=[2])
    change = own.lengths[1].differences["MAP@R"].mean
    assert own.lengths[1].metrics["MAP@R"] == pytest.approx(own.metrics["MAP@R"] + change)
    assert own.lengths[1].metrics["MAP@R"] == lengths[2]["metrics"]["MAP@R"]
    assert "MB per million" in repr(own)
    refused = CliRunner().invoke(app, ["evaluate", str(run), "--dim", "9"])
    assert isinstance(refused.exception, UsageError)
    assert "the model's vectors have 8 numbers" in str(refused.exception)


def test_an_index_of_shorter_vectors_is_searched_by_them(run: Path, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "short.index"
    done = CliRunner().invoke(app, ["index", str(pictures), "--run", str(run), "--out", str(out), "--dim", "4"])
    assert done.exit_code == 0, done.output
    query = next(iter(sorted(pictures.rglob("*.png")) or sorted(pictures.rglob("*.jpg"))))
    with open_catalogue(out) as catalogue:
        assert catalogue.index.dim == 4
        found = catalogue.search([query], k=3)[0]
    assert found[0].score == pytest.approx(1, abs=1e-5)
