"""Models of open_clip: tiny ones of the real architectures where it can be imported, and a stand-in everywhere."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.fake_open_clip import fake_open_clip
from tests.models.towers import tiny_tokenizer
from torch.nn import functional

import tophit
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.models.cut import check_stages
from tophit.models.lora import add_adapters, is_adapter
from tophit.models.open_clip_names import find_model

TEXTS = ["a photo of a red mug", "Blue!", "green mug with a handle and a text that is far too long " * 4]
NO_TRANSFORM = {"return_transform": False}
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2}
VIT = {"image_size": 32, "layers": 2, "width": 24, "head_width": 12, "patch_size": 8}
CONFIG: dict[str, Any] = {"embed_dim": 12, "vision_cfg": VIT, "text_cfg": TEXT}
KINDS: dict[str, dict[str, Any]] = {
    "tiny-vit": CONFIG,
    "tiny-quick": {**CONFIG, "quick_gelu": True},
    "tiny-resnet": {**CONFIG, "vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8}},
    "tiny-timm-vit": {
        "embed_dim": 192,
        "custom_text": True,
        "init_logit_bias": -10,
        "vision_cfg": {"timm_model_name": "vit_tiny_patch16_224", "timm_pool": "map", "timm_proj": "none"},
        "text_cfg": {
            **TEXT,
            "no_causal_mask": True,
            "pool_type": "last",
            "tokenizer_kwargs": {"clean": "canonicalize"},
        },
    },
    "tiny-convnext": {
        **CONFIG,
        "vision_cfg": {"timm_model_name": "convnext_atto", "timm_pool": "", "timm_proj": "linear", "image_size": 64},
    },
    "tiny-swin": {
        **CONFIG,
        "vision_cfg": {"timm_model_name": "swin_tiny_patch4_window7_224", "timm_pool": "avg", "timm_proj": "linear"},
    },
    "tiny-coca": {
        "embed_dim": 16,
        "custom_text": True,
        "vision_cfg": {**VIT, "attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True},
        "text_cfg": {**TEXT, "embed_cls": True, "output_tokens": True},
        "multimodal_cfg": {**TEXT, "layers": 1},
    },
}


def real_open_clip() -> Any:
    try:
        import open_clip
    except (ImportError, RuntimeError) as error:  # torchvision's operators may be missing
        pytest.skip(f"open_clip can't be imported: {error}")
    return open_clip


@pytest.fixture
def real() -> Any:
    return real_open_clip()


@pytest.fixture(params=["stand-in", "real"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "real":
        return real_open_clip()
    monkeypatch.setitem(sys.modules, "open_clip", fake := fake_open_clip())
    return fake


def tiny_model(library: Any, folder: Path, kind: str = "tiny-vit") -> tuple[str, Path]:
    """Make a tiny model known to open_clip; return the backbone's name and the file of its random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{kind}.json").write_text(json.dumps(KINDS[kind]))
    library.add_model_config(folder / f"{kind}.json")
    torch.manual_seed(0)
    model = library.create_model(kind)
    with torch.no_grad():  # so that different images and texts differ
        for value in model.parameters():
            if value.ndim > 1:
                value.normal_(0, min(0.5, (value[0].numel() / 2) ** -0.5))
            elif value.ndim == 1:
                value.uniform_(0.5, 1.0)
    torch.save(model.state_dict(), folder / f"{kind}.pt")
    return f"open_clip/{kind}:{folder / kind}.pt", folder / f"{kind}.pt"


@torch.inference_mode()
def own_features(library: Any, name: str, images: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """What open_clip says of images and TEXTS, as its documentation does it."""
    kind, _, weights = name.removeprefix("open_clip/").partition(":")
    if kind == "local-dir":
        kind, weights = f"{kind}:{weights}", ""
    model = library.create_model_from_pretrained(kind, pretrained=weights or None, return_transform=False).eval()
    texts = model.encode_text(library.get_tokenizer(kind)(TEXTS))
    return functional.normalize(model.encode_image(images), dim=1).numpy(), functional.normalize(texts, dim=1).numpy()


def check_features(library: Any, name: str, folder: Path) -> Any:
    """Compare images and words with open_clip's own, of the model and of the embedder that was saved of it."""
    embedder = tophit.load(name)
    assert embedder.architecture["pooling"] == "joint"
    side = embedder.preprocessing.size
    inputs = torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(0)).round()
    inputs[1, :, : side // 2] = 0
    pictures, texts = own_features(library, name, inputs)
    assert np.abs(pictures[0] - pictures[1]).max() > 1e-3  # or the comparison would show nothing
    assert np.abs(texts[0] - texts[1]).max() > 1e-3
    embedder.save(folder)
    for each in (embedder, tophit.load(folder)):
        with torch.inference_mode():
            np.testing.assert_allclose(each(inputs).numpy(), pictures, atol=2e-5)
        np.testing.assert_allclose(each.encode_text(TEXTS), texts, atol=2e-5)
        assert each.dim == pictures.shape[1]
    return embedder


def test_images_and_texts_are_those_of_open_clip(library: Any, tmp_path: Path) -> None:
    name, file = tiny_model(library, tmp_path / "model")
    embedder = check_features(library, name, tmp_path / "saved")
    found = embedder.preprocessing
    said = library.get_model_preprocess_cfg(library.create_model_from_pretrained("tiny-vit", str(file), **NO_TRANSFORM))
    assert (found.size, found.size) == tuple(said["size"])
    assert (found.mean, found.std) == (tuple(said["mean"]), tuple(said["std"]))
    assert (found.crop, found.squash, said["resize_mode"]) == (1.0, False, "shortest")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tiny-vit"])
def test_every_kind_of_tower_gives_the_features_of_open_clip(real: Any, kind: str, tmp_path: Path) -> None:
    name, _ = tiny_model(real, tmp_path / "model", kind)
    embedder = check_features(real, name, tmp_path / "saved")
    check_stages(embedder)
    assert len(embedder.backbone.stages()) >= 3


@pytest.mark.parametrize("encoder", [False, True])
def test_tokenizers_and_text_towers_of_transformers_are_kept(real: Any, encoder: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "model"
    words = tiny_tokenizer("clip", folder)
    text: dict[str, Any] = {**TEXT, "vocab_size": words, "hf_tokenizer_name": "some/tokenizer", "pool_type": "last"}
    if encoder:
        small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        config = transformers.RobertaConfig(**small, vocab_size=words, pad_token_id=0, max_position_embeddings=40)
        config.save_pretrained(folder / "encoder")
        text = {"hf_model_name": str(folder / "encoder"), "hf_tokenizer_name": "some/tokenizer", "context_length": 16}
    model_config = {**CONFIG, "text_cfg": text}
    pictures = {"mean": [0.5] * 3, "std": [0.25] * 3, "resize_mode": "squash"}
    described = {"model_cfg": model_config, "preprocess_cfg": pictures}
    (folder / "open_clip_config.json").write_text(json.dumps(described))
    torch.manual_seed(0)
    model = real.create_model(f"local-dir:{folder}", pretrained_text=False)
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    embedder = check_features(real, f"open_clip/local-dir:{folder}", tmp_path / "saved")
    assert embedder.preprocessing.squash
    assert embedder.preprocessing.std == (0.25, 0.25, 0.25)
    before = tophit.load(tmp_path / "saved").encode_text(TEXTS)
    shutil.rmtree(folder)
    np.testing.assert_allclose(tophit.load(tmp_path / "saved").encode_text(TEXTS), before, atol=1e-6)
    tower = tmp_path / "saved" / "text" / "tower.json"
    changed = json.loads(tower.read_text())
    changed["config"]["text_cfg"]["tokenizer_kwargs"] = {"trust_remote_code": True}
    tower.write_text(json.dumps(changed))
    with pytest.raises(TophitError, match=r"tokenizer has options other than"):
        tophit.load(tmp_path / "saved").encode_text(TEXTS)


def test_what_a_tag_says_is_used_before_its_weights_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "open_clip", fake := fake_open_clip())
    _, file = tiny_model(fake, tmp_path)
    tiny_model(fake, tmp_path, "tiny-quick")
    (tmp_path / "tiny-vit-quickgelu.json").write_text(json.dumps(KINDS["tiny-quick"]))
    fake.add_model_config(tmp_path / "tiny-vit-quickgelu.json")
    tag = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "resize_mode": "squash", "quick_gelu": True}
    fake.tags["tiny-vit"] = {"tagged": tag}
    found = find_model("tiny-vit:tagged")
    assert (found.preprocessing().mean, found.preprocessing().squash) == ((0.5, 0.5, 0.5), True)
    assert found.config["quick_gelu"]
    with pytest.raises(TophitError, match=r"not on this machine.*use it as open_clip/tiny-vit-quickgelu:FILE"):
        tophit.load("open_clip/tiny-vit:tagged")
    with pytest.raises(UsageError, match=r"open_clip/tiny-vit:WEIGHTS, such as tagged\."):
        tophit.load("open_clip/tiny-vit")
    assert find_model(f"tiny-vit:{file}").preprocessing().squash  # all weights of the architecture agree
    fake.tags["tiny-vit"]["other"] = {**tag, "resize_mode": "longest"}
    assert not find_model(f"tiny-vit:{file}").preprocessing().squash
    with pytest.raises(UsageError, match=r"resized by 'longest'"):
        tophit.load("open_clip/tiny-vit:other")


def test_what_a_real_tag_says_is_used(real: Any) -> None:
    siglip = find_model("ViT-B-16-SigLIP:webli").preprocessing()
    assert (siglip.size, siglip.squash, siglip.mean) == (224, True, (0.5, 0.5, 0.5))
    assert find_model("ViT-B-32:openai").config["quick_gelu"]  # the architecture of this name has none
    assert not find_model("ViT-B/32:laion2b_s34b_b79k").config.get("quick_gelu")


def test_a_file_gets_the_pictures_of_its_architecture(real: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.pt").write_bytes(b"")
    assert find_model(f"ViT-B-16-SigLIP:{tmp_path / 'mine.pt'}").preprocessing().squash


def test_weights_that_can_not_be_downloaded_are_told(
    real: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOPHIT_OFFLINE", "1")
    with pytest.raises(
        TophitError, match=r"'open_clip/ViT-B-32:openai' are not on this machine.*ViT-B-32-quickgelu:FILE"
    ):
        find_model("ViT-B-32:openai").load()
    with pytest.raises(TophitError, match=r"not on this machine.*local-dir:FOLDER"):
        tophit.load("open_clip/hf-hub:nobody/nothing")
    with pytest.raises(UsageError, match=r"names no weights.*open_clip/ViT-B-32:WEIGHTS, such as openai"):
        find_model("ViT-B-32").load()


def test_a_saved_embedder_needs_none_of_its_files(
    library: Any, tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, file = tiny_model(library, tmp_path / "model")
    torch.manual_seed(1)
    embedder = build_embedder(name, pooling="joint", dim=5, squash=None).eval()
    paths = sorted(pictures.rglob("*.png"))[:3]
    vectors, texts = embedder.encode(paths), embedder.encode_text(TEXTS)
    assert texts.shape == (3, 5)
    embedder.save(tmp_path / "first")
    file.unlink()
    monkeypatch.setattr(library, "get_model_config", None)
    tophit.load(tmp_path / "first").save(tmp_path / "second")
    shutil.rmtree(tmp_path / "first")
    again = tophit.load(tmp_path / "second")
    np.testing.assert_allclose(again.encode(paths), vectors, atol=1e-6)
    np.testing.assert_allclose(again.encode_text(TEXTS), texts, atol=1e-6)
    assert again.fingerprint() == embedder.fingerprint()


def test_a_stranger_s_embedder_makes_nothing_larger_than_its_file(library: Any, tmp_path: Path) -> None:
    tophit.load(tiny_model(library, tmp_path / "model")[0]).save(tmp_path / "saved")
    path = tmp_path / "saved" / "text" / "tower.json"
    good = path.read_text()
    path.write_text(good.replace('"layers": 2', '"layers": 400'))
    with pytest.raises(TophitError, match=r"more weights than its file"):
        tophit.load(tmp_path / "saved").encode_text(["red"])
    path = tmp_path / "saved" / "embedder.json"
    fields = json.loads(path.read_text())
    vision = fields["architecture"]["config"]["vision_cfg"]
    for change, words in (
        ({"vision_cfg": {**vision, "layers": 400}}, "more than its file"),
        ({"vision_cfg": {**vision, "timm_model_name": "hf-hub:some-one/model"}}, "looked up on the network"),
        (None, "looked up on the network"),
    ):
        changed = json.loads(json.dumps(fields))
        changed["architecture"]["config"] = change and fields["architecture"]["config"] | change
        path.write_text(json.dumps(changed))
        with pytest.raises(TophitError, match=words):
            tophit.load(tmp_path / "saved")


def test_wrong_names_and_files_are_told(library: Any, tmp_path: Path) -> None:
    name, file = tiny_model(library, tmp_path / "model")
    with pytest.raises(UsageError, match=r"open_clip has no model 'tiny-vitt'\. It has tiny-vit"):
        tophit.load("open_clip/tiny-vitt")
    with pytest.raises(UsageError, match=r"no weights 'nothing' for 'tiny-vit', and there is no such file"):
        tophit.load("open_clip/tiny-vit:nothing")
    with pytest.raises(UsageError, match=r"'open_clip/tiny-vit' names no weights: .*open_clip/tiny-vit:WEIGHTS"):
        tophit.load("open_clip/tiny-vit")
    torch.save({"visual.proj": torch.zeros(2)}, file)
    with pytest.raises(TophitError, match=r"weights in '.*tiny-vit\.pt' do not fit 'open_clip/tiny-vit'"):
        tophit.load(name)
    file.write_text("nothing")
    with pytest.raises(TophitError, match=r"weights in '.*tiny-vit\.pt' do not fit 'open_clip/tiny-vit'"):
        tophit.load(name)


def test_other_sizes_and_poolings(library: Any, tmp_path: Path, pictures: Path) -> None:
    name, file = tiny_model(library, tmp_path / "model")
    images = sorted(pictures.rglob("*.png"))[:2]
    with pytest.raises(UsageError, match=r"takes images of 32 x 32 pixels, not 48 x 48: leave out embedder.size"):
        build_embedder(name, size=48).encode(images)
    with pytest.raises(UsageError, match=r"pooled by 'cls'.*pooling: joint"):
        build_embedder(name, pooling="cls").encode_text("red")
    alone = build_embedder("open_clip/tiny-vit", str(file), pooling="joint", squash=None).eval()
    np.testing.assert_allclose(alone.encode(images), tophit.load(name).encode(images), atol=1e-6)
    assert build_embedder("open_clip/tiny-vit", "random", pooling="gem", dim=4).encode(images).shape == (2, 4)


@pytest.mark.parametrize("trainable", ["last", "lora"])
def test_a_run_learns_and_keeps_words(library: Any, trainable: str, tmp_path: Path, pictures: Path) -> None:
    name, _ = tiny_model(library, tmp_path / "model")
    result = tophit.train(
        pictures,
        out=tmp_path / "run",
        embedder={"backbone": name, "pooling": "joint", "dim": None, "trainable": trainable},
        schedule={"epochs": 4},
        optimizer={"backbone": {"lr": 0.03}},
        words={"weight": 10.0},
        evaluation={"keep": "trained", "test": False, "calibrate": False},
    )
    base, learned = tophit.load(name), tophit.load(tmp_path / "run")
    np.testing.assert_allclose(learned.encode_text(TEXTS), base.encode_text(TEXTS), atol=1e-6)
    assert result.embedder.takes_words
    before, after = base.backbone.state_dict(), learned.backbone.state_dict()
    moved = {key for key, value in after.items() if not torch.equal(value, before[key])}
    assert moved
    assert all(".resblocks." in key for key in moved)


def test_every_adapter_learns(real: Any, tmp_path: Path) -> None:
    """Torch's attention reads the weights of its linear layer, so an adapter there would never learn."""
    embedder = build_embedder(tiny_model(real, tmp_path / "model")[0], pooling="joint", squash=None)
    add_adapters(embedder, rank=2, alpha=4.0)
    embedder(torch.rand(2, 3, 32, 32))[:, 0].sum().backward()
    adapters = {name: value for name, value in embedder.named_parameters() if is_adapter(name)}
    assert len(adapters) == 8  # two layers of two blocks
    assert all(value.grad is not None for value in adapters.values())
