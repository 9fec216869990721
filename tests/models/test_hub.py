"""Embedders on the Hugging Face Hub, against a server on loopback; nothing leaves the machine."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard, constants
from tests.models.hub_server import TOKEN, Hub, serve_hub

import tophit
from tophit.errors import TophitError, UsageError
from tophit.models import Embedder, build_embedder
from tophit.training import TrainingResult


def only_loopback(host: str, *rest: Any, look_up: Any = socket.getaddrinfo, **options: Any) -> Any:
    assert host == "127.0.0.1", f"a request to {host}"
    return look_up(host, *rest, **options)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    with serve_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.address)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(socket, "getaddrinfo", only_loopback)
        yield server


@pytest.fixture
def embedder() -> Embedder:
    return build_embedder("small", "random", dim=8, size=32).eval()


@pytest.fixture(scope="module")
def result(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    small = {"backbone": "small", "weights": "random", "size": 32, "dim": 16}
    folder = tmp_path_factory.mktemp("runs") / "a"
    return tophit.train(pictures, out=folder, loss="pnp", embedder=small, schedule={"epochs": 1}, log=[])


def test_what_is_uploaded_comes_back_with_the_same_vectors(
    hub: Hub, embedder: Embedder, pictures: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = embedder.push_to_hub("me/shapes", private=True, message="First")
    assert name == "hf:me/shapes"
    assert hub.private == {"me/shapes": True}
    assert hub.messages == ["First"]
    again = tophit.load(name)
    assert again.fingerprint() == embedder.fingerprint()
    assert capfd.readouterr() == ("", "")
    image = next(pictures.rglob("*.png"))
    np.testing.assert_array_equal(again.encode([image]), embedder.encode([image]))
    assert len(tophit.evaluate(name, pictures, split="all").queries) == 48  # wherever a model is named


def test_a_revision_is_named_after_an_at_sign(hub: Hub, embedder: Embedder) -> None:
    embedder.push_to_hub("me/shapes")
    build_embedder("small", "random", dim=4, size=32).push_to_hub("me/shapes")
    first = hub.commits["me/shapes"][0][0]
    assert tophit.load("hf:me/shapes").dim == 4
    assert tophit.load(f"hf:me/shapes@{first}").dim == 8
    with pytest.raises(TophitError, match="there is no such revision"):
        tophit.load("hf:me/shapes@0123456")


def test_the_card_has_the_runs_data_recipe_and_metrics_with_intervals(
    hub: Hub, result: TrainingResult, pictures: Path
) -> None:
    result.embedder.push_to_hub("me/run")
    text = hub.commits["me/run"][-1][1]["README.md"].decode()
    card = ModelCard(text)
    assert card.data.library_name == "tophit"  # type: ignore[union-attr]
    value, (low, high) = result.metrics["MAP@R"], result.intervals["MAP@R"]
    assert f"| MAP@R | {100 * value:.1f} | {100 * low:.1f} to {100 * high:.1f} |" in text
    assert f"Trained on `{pictures.name}`" in text
    assert str(pictures) not in text  # nobody's folders
    recipe = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert recipe["loss"]["name"] == "pnp"
    assert 'tophit.load("hf:me/run")' in text
    tophit.load("hf:me/run").push_to_hub("me/copy")  # from a download, without the run
    assert "## Results" not in hub.commits["me/copy"][-1][1]["README.md"].decode()


def test_what_goes_wrong_is_said_in_a_sentence(
    hub: Hub, embedder: Embedder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="write hf:USER/NAME"):
        tophit.load("hf:shapes")
    with pytest.raises(TophitError, match="'hf:me/nothing' can't be downloaded: there is no such repository"):
        tophit.load("hf:me/nothing")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(TophitError, match="can't be uploaded: the hub asks for a token"):
        embedder.push_to_hub("me/shapes")
    monkeypatch.setenv("TOPHIT_OFFLINE", "1")
    with pytest.raises(TophitError, match="TOPHIT_OFFLINE is set, and it is not on this machine"):
        tophit.load("hf:me/nothing")
