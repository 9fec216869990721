import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import tophit
from tophit.errors import TophitError, UsageError
from tophit.images.decode import BadImage
from tophit.models import Embedder, backbone_names, build_embedder, register_backbone
from tophit.models.backbones import build_backbone
from tophit.models.pooling import AveragePooling, GeMPooling
from tophit.models.running import onnx_installed
from tophit.models.runtimes import OnnxRuntime, TorchRuntime, choose_runtime
from tophit.models.small_net import SmallNet


@pytest.fixture
def embedder() -> Embedder:
    torch.manual_seed(0)
    return build_embedder("small", "random", dim=16, size=32).eval()


def test_paths_pictures_and_arrays_give_the_same_unit_vectors_in_order(embedder: Embedder, pictures: Path) -> None:
    paths = sorted(pictures.rglob("*.png"))[:11]
    vectors = embedder.encode(paths, batch_size=4)
    assert vectors.shape == (11, 16)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    opened = [Image.open(path) for path in paths]
    for same in (
        [str(path) for path in paths],
        opened,
        [np.asarray(image) for image in opened],
        [np.asarray(image) / 255 for image in opened],
    ):
        np.testing.assert_allclose(embedder.encode(same), vectors, atol=1e-6)
    np.testing.assert_allclose(embedder.encode(paths[::-1], batch_size=3), vectors[::-1], atol=1e-6)
    np.testing.assert_allclose(embedder.encode(paths[2]), vectors[2:3], atol=1e-6)
    assert embedder.encode([]).shape == (0, 16)


def test_what_is_no_image_is_refused(embedder: Embedder) -> None:
    with pytest.raises(TypeError, match="an image must be a path, a Pillow image or an array, not int"):
        embedder.encode([1, 2])  # type: ignore[list-item]


def test_an_unreadable_image_is_named(embedder: Embedder, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_text("text")
    with pytest.raises(BadImage, match=r"x\.png: not an image"):
        embedder.encode([tmp_path / "x.png"])


@pytest.mark.parametrize("pooling", ["average", "gem"])
def test_a_saved_embedder_loads_alone_and_gives_the_same_vectors(pooling: str, pictures: Path, tmp_path: Path) -> None:
    before = build_embedder("small", "random", pooling, dim=16, size=32, crop=0.9, squash=True)
    before.save(tmp_path / "e")
    assert sorted(path.name for path in (tmp_path / "e").iterdir()) == ["embedder.json", "weights.safetensors"]
    after = tophit.load(tmp_path / "e")
    paths = sorted(pictures.rglob("*.png"))[:5]
    assert (after.encode(paths) == before.encode(paths)).all()
    assert after.fingerprint() == before.fingerprint()
    assert after.preprocessing == before.preprocessing


def test_the_fingerprint_changes_with_weights_and_preprocessing(embedder: Embedder) -> None:
    torch.manual_seed(0)
    same = build_embedder("small", "random", dim=16, size=32)
    torch.manual_seed(0)
    other_size = build_embedder("small", "random", dim=16, size=40)
    assert same.fingerprint() == embedder.fingerprint() != other_size.fingerprint()
    with torch.no_grad():
        next(same.head.parameters()).add_(1e-3)
    assert same.fingerprint() != embedder.fingerprint()
    assert same.feature_fingerprint() == embedder.feature_fingerprint()


def test_a_backbones_name_loads_without_a_head() -> None:
    network = tophit.load("efficientnet-lite0")
    assert network.dim == 1280
    assert sum(p.numel() for p in network.parameters()) == 4_652_008 - 1_281_000  # without the classifier


def test_efficientnet_knows_its_imagenet_weights() -> None:
    """The features of drawings of one shape are nearer to each other than to another shape's."""
    network = tophit.load("efficientnet-lite0")
    grid = np.indices((96, 96)).transpose(1, 2, 0)
    disc = (np.hypot(*(grid - 48).transpose(2, 0, 1)) < 30) * 1.0
    smaller_disc = (np.hypot(*(grid - 44).transpose(2, 0, 1)) < 26) * 1.0
    stripes = (grid[:, :, 0] // 6 % 2) * 1.0
    wider_stripes = (grid[:, :, 0] // 7 % 2) * 1.0
    similarity = (vectors := network.encode([disc, smaller_disc, stripes, wider_stripes])) @ vectors.T
    assert min(similarity[0, 1], similarity[2, 3]) > similarity[:2, 2:].max() + 0.1


def test_files_that_hold_no_embedder_are_refused(tmp_path: Path, embedder: Embedder) -> None:
    with pytest.raises(UsageError, match=r"is not the folder of a run.*backbones are bn-inception, .*, small"):
        tophit.load("efficientnet")
    with pytest.raises(TophitError, match=r"holds no embedder: expected embedder\.json"):
        tophit.load(tmp_path)
    embedder.save(tmp_path)
    (tmp_path / "weights.safetensors").write_bytes(b"not tensors")
    with pytest.raises(TophitError, match="does not hold plain tensors"):
        tophit.load(tmp_path)
    (tmp_path / "embedder.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(TophitError, match="format 99"):
        tophit.load(tmp_path)
    (tmp_path / "embedder.json").write_text("{}")
    with pytest.raises(TophitError, match="does not describe an embedder"):
        tophit.load(tmp_path)


class Evil:
    """A pickle that leaves a mark when it is loaded."""

    def __reduce__(self) -> tuple:
        return Path.touch, (Path("unpickled"),)


def test_a_users_weights_file_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, save in (("a.pth", lambda f: torch.save({"x": Evil()}, f)), ("b.pth", lambda f: pickle.dump(Evil(), f))):
        with (tmp_path / name).open("wb") as file:
            save(file)
        with pytest.raises(TophitError, match="does not hold plain tensors"):
            build_backbone("small", str(tmp_path / name))
    assert not (tmp_path / "unpickled").exists()


def test_weights_come_from_a_file_if_they_fit(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    state = SmallNet().state_dict()
    save_file(state, tmp_path / "w.safetensors")
    torch.save(state, tmp_path / "w.pth")
    for name in ("w.safetensors", "w.pth"):
        loaded = build_backbone("small", str(tmp_path / name)).state_dict()
        assert all(torch.equal(loaded[key], state[key]) for key in state)
    with pytest.raises(TophitError, match="do not fit 'efficientnet-lite0'"):
        build_backbone("efficientnet-lite0", str(tmp_path / "w.pth"))
    with pytest.raises(TophitError, match="There is no weights file"):
        build_backbone("small", str(tmp_path / "nothing.pth"))
    with pytest.raises(UsageError, match="no pretrained weights"):
        build_backbone("small")


def test_backbones_are_listed_by_pattern_and_misspellings_get_a_hint() -> None:
    assert backbone_names("efficientnet*") == ["efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"]
    with pytest.raises(UsageError, match=r"no backbone 'smal'\. Did you mean 'small'"):
        build_embedder("smal")


def test_a_user_can_register_a_backbone(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tophit import registry
    from tophit.images.preprocessing import Preprocessing

    monkeypatch.setitem(registry._registered, ("backbone", "mine"), registry.Entry("backbone", "mine", "", ""))
    register_backbone("mine", Preprocessing(size=24))(SmallNet)
    assert build_embedder("mine", "random", dim=4).encode(sorted(pictures.rglob("*.png"))[:2]).shape == (2, 4)


def test_gem_lies_between_average_and_maximum_and_is_its_formula() -> None:
    x = torch.rand(3, 5, 4, 4, dtype=torch.float64)
    literal = (x.pow(3).sum(dim=(2, 3)) / 16) ** (1 / 3)
    torch.testing.assert_close(GeMPooling(3.0)(x), literal)
    torch.testing.assert_close(GeMPooling(1.0)(x), AveragePooling()(x))
    torch.testing.assert_close(GeMPooling(500.0)(x), x.amax(dim=(2, 3)), rtol=1e-2, atol=0)


@pytest.mark.parametrize("backbone", ["small", "efficientnet-lite0"])
def test_onnxruntime_gives_the_same_features_for_any_batch(backbone: str) -> None:
    network = build_embedder(backbone, "random" if backbone == "small" else "pretrained", "gem", size=64)
    images = np.random.default_rng(0).normal(size=(5, 3, 64, 64)).astype(np.float32)
    eager = TorchRuntime(network).compute(images)
    assert onnx_installed()
    exported = OnnxRuntime(network)
    for count in (1, 5):
        np.testing.assert_allclose(exported.compute(images[:count]), eager[:count], rtol=1e-3, atol=1e-4)


def test_few_images_are_not_worth_an_export_and_it_can_be_turned_off(
    embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_runtime(embedder, images=10).name == "torch"
    monkeypatch.setenv("TOPHIT_ONNX", "0")
    assert choose_runtime(embedder, images=10_000).name in ("torch", "torch-contiguous")  # whichever is faster
