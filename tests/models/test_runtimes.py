import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from tophit.cli import app
from tophit.errors import TophitError, UsageError
from tophit.models import Embedder, build_embedder, exported, runtimes
from tophit.models.exported import export_embedder
from tophit.models.runtimes import build_runtime, choose, choose_runtime, fastest_runtime, runtimes_at_hand


@pytest.fixture
def embedder() -> Embedder:
    torch.manual_seed(0)
    return build_embedder("small", "random", "gem", dim=16, size=32).eval()


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "torch", "torch-contiguous"])
def test_every_engine_gives_the_same_features_to_1e_4_cosine_distance(name: str, embedder: Embedder) -> None:
    assert name in runtimes_at_hand()  # the dev extra installs them all
    images = np.random.default_rng(0).normal(size=(5, 3, 32, 32)).astype(np.float32)
    with torch.inference_mode():
        expected = embedder.features(torch.from_numpy(images)).numpy()
    runtime = build_runtime(name, embedder)
    assert runtime.name == name
    for count in (1, 5):
        found = runtime.compute(images[:count])
        assert found.dtype == np.float32
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected[:count], axis=1)
        assert (1 - (found * expected[:count]).sum(1) / lengths).max() < 1e-6
        np.testing.assert_allclose(found, expected[:count], rtol=1e-3, atol=1e-4)


def test_openvino_computes_in_float32_unless_asked(embedder: Embedder) -> None:
    compiled = build_runtime("openvino", embedder).request.get_compiled_model()  # type: ignore[attr-defined]
    assert "float32" in str(compiled.get_property("INFERENCE_PRECISION_HINT"))
    assert build_runtime("openvino", embedder, "bf16").name == "openvino-bf16"


def test_bf16_is_near_float32_and_has_a_name_of_its_own(embedder: Embedder) -> None:
    images = np.random.default_rng(0).normal(size=(4, 3, 32, 32)).astype(np.float32)
    full, reduced = build_runtime("torch", embedder), build_runtime("torch", embedder, "bf16")
    assert reduced.name == "torch-bf16"
    a, b = full.compute(images), reduced.compute(images)
    assert b.dtype == np.float32
    assert not (a == b).all()
    np.testing.assert_allclose(a, b, rtol=0.05, atol=0.02)
    with pytest.raises(UsageError, match="onnxruntime supports fp32, not bf16"):
        build_runtime("onnxruntime", embedder, "bf16")
    with pytest.raises(UsageError, match="no precision 'fp8'"):
        choose_runtime(embedder, 10, precision="fp8")


def test_the_fastest_is_measured_once_and_stays(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path))
    monkeypatch.delenv("TOPHIT_ENGINE", raising=False)
    asked: list[int] = []

    def measure(embedder: Embedder, batch: int, precision: str, names: list[str]) -> dict[str, float]:
        asked.append(batch)
        return {name: 1.0 if name == "torch-contiguous" else 2.0 for name in names}

    monkeypatch.setattr(runtimes, "measure_runtimes", measure)
    for _ in range(3):
        assert choose_runtime(embedder, 10_000).name == "torch-contiguous"
    assert asked == [64]
    assert choose_runtime(embedder, 10_000, batch=8).name == "torch-contiguous"
    assert asked == [64, 8]
    (kept, _) = sorted((tmp_path / "engines").iterdir())
    assert json.loads(kept.read_text())["seconds_an_image"]["torch"] == 2.0
    monkeypatch.setenv("TOPHIT_ENGINE", "torch")
    assert choose_runtime(embedder, 10_000).name == "torch"
    assert choose_runtime(embedder, 10_000, runtime="torch-contiguous").name == "torch-contiguous"


def test_a_real_measurement_gives_every_engine_a_time(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path))
    names = runtimes_at_hand()
    seconds = runtimes.measure_runtimes(embedder, 4, "fp32", names)
    assert list(seconds) == names
    assert all(value > 0 for value in seconds.values())
    assert fastest_runtime(embedder, 4) == fastest_runtime(embedder, 4)


def test_noise_does_not_choose() -> None:
    assert choose({"onnxruntime": 1.0, "openvino": 0.95, "torch": 3.0}) == "onnxruntime"
    assert choose({"onnxruntime": 1.0, "openvino": 0.8, "torch": 3.0}) == "openvino"
    assert choose({"onnxruntime": 1.0, "openvino": 0.95, "torch": 0.5}) == "torch"


def test_an_unknown_or_missing_engine_is_refused(embedder: Embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no runtime 'cuda'; choices: onnxruntime, openvino, torch"):
        build_runtime("cuda", embedder)
    monkeypatch.setattr("tophit.models.running.importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"install it with: pip install 'tophit\[openvino\]'"):
        build_runtime("openvino", embedder)


@pytest.mark.parametrize("pooling", ["rmac", "gem"])
def test_an_exported_model_gives_torchs_unit_vectors_for_any_batch(pooling: str, tmp_path: Path) -> None:
    import onnxruntime

    network = build_embedder("small", "random", pooling, dim=16, size=32, layer_norm=True, learn_p=pooling == "gem")
    found = export_embedder(network, tmp_path / "new" / "model.onnx", "mine")
    assert found.difference is not None
    assert found.difference < 1e-5
    assert set(found.speeds) == {1, 8}
    session = onnxruntime.InferenceSession(found.graph, providers=["CPUExecutionProvider"])
    pictures = [Image.effect_noise((40, 50), 80).convert("RGB") for _ in range(3)]
    fields = json.loads((tmp_path / "new" / "model.json").read_text())
    assert fields["fingerprint"] == network.fingerprint()
    assert fields["output"]["shape"] == ["batch", 16]
    images = np.stack([network.preprocessing(picture) for picture in pictures])
    (vectors,) = session.run(["vectors"], {"images": images})
    np.testing.assert_allclose(vectors, network.encode(pictures), atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_an_export_that_differs_is_not_written(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exported, "_compare", lambda embedder, path: (float("nan"), {}))
    with pytest.raises(TophitError, match=r"was not written: .* differ from torch's by nan"):
        export_embedder(embedder, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match=r"must end in \.onnx, not 'model\.pt'"):
        export_embedder(embedder, tmp_path / "model.pt")


def test_the_command_export_says_the_difference_and_both_speeds(embedder: Embedder, tmp_path: Path) -> None:
    embedder.save(tmp_path / "run")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--out", str(tmp_path / "m.onnx")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "m.onnx").is_file()
    assert (tmp_path / "m.json").is_file()


def test_encode_uses_what_was_measured_and_exported_before(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path))
    used: list[str] = []
    monkeypatch.setattr(runtimes, "build_runtime", lambda name, *rest: used.append(name) or build_runtime(name, *rest))
    monkeypatch.setattr(runtimes, "measure_runtimes", lambda *rest: {"torch": 2.0, "onnxruntime": 1.0})
    pictures = [np.full((32, 32, 3), shade, np.uint8) for shade in range(40)]
    slow = embedder.encode(pictures)
    assert fastest_runtime(embedder, runtimes.BATCH) == "onnxruntime"
    embedder.encode(pictures)
    assert used == ["torch", "torch"]  # measured for this backbone, but these weights were never exported
    build_runtime("onnxruntime", embedder)
    np.testing.assert_allclose(embedder.encode(pictures), slow, atol=1e-5)
    embedder.encode(pictures[:3])
    assert used[2:] == ["onnxruntime", "torch"]  # a few images are not worth loading a graph
