"""Backbones of other libraries: transformers as it is, stand-ins for timm and torchvision.

Those two do not import beside the tests' build of torch; both were tried for real by hand.
"""

import builtins
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tophit
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.models.weights import PublishedFile


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("timm/resnet18", "pip install timm"),
        ("torchvision/resnet18", "pip install torchvision"),
        ("hf/facebook/dinov2-small", r"pip install 'tophit\[hf\]'"),
        ("open_clip/ViT-B-32:openai", r"pip install 'tophit\[open-clip\]'"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_command(
    name: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = {"hf": "transformers"}.get(name.split("/")[0], name.split("/")[0])
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises((UsageError, TophitError), match=rf"'{name}' needs {library}"):
        build_embedder(name)
    monkeypatch.delitem(sys.modules, library)
    real = builtins.__import__

    def missing(module: str) -> Any:
        if module == library:
            raise ModuleNotFoundError(f"No module named '{module}'", name=module)
        return real(module)

    monkeypatch.setattr("tophit.models.backbones.import_module", missing)
    with pytest.raises(UsageError, match=command):
        build_embedder(name)


def tiny_folder(kind: str, folder: Path) -> str:
    """Save a tiny model of transformers with random weights, as a download would."""
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    if kind == "dinov2":
        config = transformers.Dinov2Config(**small, image_size=56, patch_size=14)
    elif kind == "registers":
        config = transformers.Dinov2WithRegistersConfig(**small, image_size=56, patch_size=14, num_register_tokens=4)
    elif kind == "vit":
        config = transformers.ViTConfig(**small, image_size=48, patch_size=16)
    elif kind == "siglip":
        vision = {**small, "image_size": 32, "patch_size": 8}
        config = transformers.SiglipConfig(text_config={**small, "vocab_size": 30}, vision_config=vision)
    else:
        config = transformers.ResNetConfig(hidden_sizes=[8, 12], depths=[1, 1], embedding_size=8, layer_type="basic")
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    processor: dict[str, Any] = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.2, 0.3]}
    if kind == "siglip":
        processor |= {"size": {"height": 32, "width": 32}}
    else:
        processor |= {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}, "do_center_crop": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return f"hf/{folder}"


@pytest.mark.parametrize(
    ("kind", "prefix", "channels", "pooling"),
    [
        ("dinov2", 1, 16, "cls"),
        ("registers", 5, 16, "gem"),
        ("vit", 1, 16, "average"),
        ("siglip", 0, 16, "rmac"),
        ("resnet", 0, 12, "max"),
    ],
)
def test_a_model_of_transformers_embeds_and_its_embedder_loads_alone(
    kind: str, prefix: int, channels: int, pooling: str, tmp_path: Path, pictures: Path
) -> None:
    name = tiny_folder(kind, tmp_path / "model")
    embedder = build_embedder(name, pooling=pooling, dim=4, squash=None).eval()
    assert (embedder.backbone.prefix_tokens, embedder.backbone.channels) == (prefix, channels)
    assert embedder.preprocessing.mean == (0.4, 0.5, 0.6)
    assert (embedder.preprocessing.size, embedder.preprocessing.squash) == (
        (32, True) if kind == "siglip" else (56, False)
    )
    assert embedder.preprocessing.crop == (1.0 if kind == "siglip" else 0.875)
    paths = sorted(pictures.rglob("*.png"))[:3]
    vectors = embedder.encode(paths)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    embedder.save(tmp_path / "saved")
    for file in (tmp_path / "model").iterdir():
        file.unlink()
    np.testing.assert_allclose(tophit.load(tmp_path / "saved").encode(paths), vectors, atol=1e-6)


def test_pretrained_weights_of_transformers_are_those_in_its_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    name = tiny_folder("siglip", tmp_path)
    embedder = build_embedder(name, squash=None).eval()
    images = torch.randn(2, 3, 32, 32)
    model = transformers.AutoModel.from_pretrained(tmp_path).eval()
    with torch.inference_mode():
        expected = model.vision_model(pixel_values=images).last_hidden_state.mean(1)
        torch.testing.assert_close(embedder.features(images), expected)


def test_cls_needs_a_class_token(tmp_path: Path) -> None:
    assert tophit.load(tiny_folder("vit", tmp_path / "vit")).architecture["pooling"] == "cls"
    with pytest.raises(UsageError, match="cls needs a class token"):
        build_embedder(tiny_folder("siglip", tmp_path / "siglip"), pooling="cls")
    with pytest.raises(UsageError, match=r"embedder\.pooling: cls needs .* 'small' does not have"):
        build_embedder("small", "random", "cls")


def test_a_model_that_is_not_here_says_what_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("TOPHIT_OFFLINE", "1")
    with pytest.raises(TophitError, match=r"can't be downloaded .*hf download nobody/nothing --local-dir FOLDER"):
        build_embedder("hf/nobody/nothing")


class FakeViT(nn.Module):
    """A stand-in with what timm promises of its vision transformers."""

    num_features, num_prefix_tokens = 6, 1

    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.ones(1, 1, 6))
        self.proj = nn.Conv2d(3, 6, 8, 8)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.proj(x).flatten(2).transpose(1, 2)
        return torch.cat([self.cls_token.expand(len(x), -1, -1), patches], dim=1)


class FakeSwin(nn.Module):
    """A stand-in with what timm promises of networks whose channels come last."""

    num_features, output_fmt = 6, "NHWC"

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, 6, 8, 8)

    def forward_features(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(x).permute(0, 2, 3, 1)


@pytest.fixture
def fake_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {"fake_vit": FakeViT, "fake_swin": FakeSwin}

    def create(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        if pretrained:
            raise OSError("no network")
        return kinds[name]()

    data = {"input_size": (3, 32, 32), "crop_pct": 0.9, "mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    module = SimpleNamespace(
        is_model=kinds.__contains__,
        list_models=lambda pattern: ["fake_vit"],
        create_model=create,
        data=SimpleNamespace(resolve_model_data_config=lambda model: data),
    )
    monkeypatch.setitem(sys.modules, "timm", module)  # type: ignore[arg-type]


def test_timm_gives_maps_and_tokens_and_its_preprocessing(fake_timm: None, tmp_path: Path) -> None:
    for name, pooling in (("fake_vit", "cls"), ("fake_vit", "average"), ("fake_swin", "max")):
        embedder = build_embedder(f"timm/{name}", "random", pooling)
        assert embedder.preprocessing.to_json()["mean"] == (0.1, 0.2, 0.3)
        assert (embedder.preprocessing.size, embedder.preprocessing.crop) == (32, 0.9)
        images = torch.randn(2, 3, 32, 32)
        maps = embedder.backbone.get_submodule("model.proj")(images)
        expected = {"cls": torch.ones(2, 6), "average": maps.mean((2, 3)), "max": maps.amax((2, 3))}[pooling]
        torch.testing.assert_close(embedder.features(images), expected)
    state = {**FakeViT().state_dict(), "head.weight": torch.zeros(3)}
    torch.save(state, tmp_path / "vit.pth")
    loaded = build_embedder("timm/fake_vit", str(tmp_path / "vit.pth")).backbone.state_dict()
    assert torch.equal(loaded["model.proj.weight"], state["proj.weight"])


def test_timm_without_a_network_or_with_a_wrong_name_says_so(fake_timm: None) -> None:
    with pytest.raises(TophitError, match=r"can't be downloaded \(no network\); download its safetensors"):
        build_embedder("timm/fake_vit")
    with pytest.raises(UsageError, match=r"timm has no model 'fake_vitt'\. It has fake_vit"):
        build_embedder("timm/fake_vitt")


class FakeNet(nn.Module):
    """A stand-in with the shape of torchvision's classification networks."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 5, 4, 4)
        self.aux1 = nn.Linear(2, 2)
        self.norm = nn.BatchNorm2d(5)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(5, 10)


def test_torchvision_is_cut_before_its_pooling(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    crop = SimpleNamespace(crop_size=[224], resize_size=[256], mean=[0.1, 0.2, 0.3], std=[0.4, 0.5, 0.6])
    weights = SimpleNamespace(url="https://example.org/fake-0123abcd.pth", transforms=lambda: crop)
    models = SimpleNamespace(
        list_models=lambda module, include=None: ["fake"],
        get_model_weights=lambda name: SimpleNamespace(DEFAULT=weights),
        get_model=lambda name, weights: FakeNet(),
    )
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))  # type: ignore[arg-type]
    torch.save(FakeNet().state_dict(), tmp_path / "fake.pth")
    embedder = build_embedder("torchvision/fake", str(tmp_path / "fake.pth"))
    assert [name for name, _ in embedder.backbone.named_children()] == ["features", "norm"]
    assert embedder.backbone.channels == 5
    assert embedder.preprocessing.crop == 0.875
    file = PublishedFile(weights.url, "0123abcd")
    monkeypatch.setenv("TOPHIT_OFFLINE", "1")
    with pytest.raises(TophitError, match=rf"download {file.url} and save it as"):
        build_embedder("torchvision/fake")
    with pytest.raises(UsageError, match="no classification model 'fakes'"):
        build_embedder("torchvision/fakes")
