"""Words: text towers of tiny models of the real architectures, against transformers' own features."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.models.towers import tiny_towers

import tophit
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder

KINDS = ["clip", "siglip"]
TEXTS = ["a photo of a red mug", "blue", "green mug with a handle 7 8 9 a photo of a class that is far too long"]


def unit(rows: Any) -> np.ndarray:
    rows = np.asarray(rows, np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def own_features(kind: str, folder: Path, images: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """What transformers says of images and TEXTS, with the inputs that its documentation prescribes."""
    import transformers

    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    padding = True if kind == "clip" else "max_length"
    words = tokenizer(TEXTS, padding=padding, truncation=True, max_length=12, return_tensors="pt")
    given = words if kind == "clip" else {"input_ids": words["input_ids"]}
    with torch.inference_mode():
        texts, pictures = model.get_text_features(**given), model.get_image_features(pixel_values=images)
    return unit(pictures.pooler_output), unit(texts.pooler_output)


@pytest.mark.parametrize("kind", KINDS)
def test_images_and_texts_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    embedder = tophit.load(tiny_towers(kind, tmp_path / "model"))
    assert embedder.architecture["pooling"] == "joint"
    assert embedder.takes_words
    assert embedder.dim == (12 if kind == "clip" else 16)
    images = torch.randn(3, 3, 32, 32)
    pictures, texts = own_features(kind, tmp_path / "model", images)
    with torch.inference_mode():
        np.testing.assert_allclose(embedder(images).numpy(), pictures, atol=1e-5)
    np.testing.assert_allclose(embedder.encode_text(TEXTS), texts, atol=1e-5)
    np.testing.assert_allclose(embedder.encode_text(TEXTS[0]), texts[:1], atol=1e-5)
    np.testing.assert_allclose(embedder.encode_text(TEXTS * 30)[-3:], texts, atol=1e-5)  # in batches
    assert embedder.encode_text([]).shape == (0, embedder.dim)
    assert np.abs(texts[0] - texts[1]).max() > 0.01  # or the comparison would show nothing


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_embedder_takes_words_without_its_model(kind: str, tmp_path: Path, pictures: Path) -> None:
    torch.manual_seed(1)
    embedder = build_embedder(tiny_towers(kind, tmp_path / "model"), pooling="joint", dim=5, squash=None).eval()
    paths = sorted(pictures.rglob("*.png"))[:3]
    vectors, texts = embedder.encode(paths), embedder.encode_text(TEXTS)
    assert texts.shape == (3, 5)
    embedder.save(tmp_path / "first")
    shutil.rmtree(tmp_path / "model")
    loaded = tophit.load(tmp_path / "first")
    loaded.save(tmp_path / "second")
    shutil.rmtree(tmp_path / "first")
    again = tophit.load(tmp_path / "second")
    np.testing.assert_allclose(again.encode(paths), vectors, atol=1e-6)
    np.testing.assert_allclose(again.encode_text(TEXTS), texts, atol=1e-6)
    assert again.fingerprint() == embedder.fingerprint()
    with torch.no_grad():
        linear = again.head.weight.numpy(), again.head.bias.numpy()
    whole = build_embedder_without_head(again)
    np.testing.assert_allclose(texts, unit(whole.encode_text(TEXTS) @ linear[0].T + linear[1]), atol=1e-5)
    np.testing.assert_allclose(again.shortened(3).encode_text(TEXTS), unit(texts[:, :3] * 1.0), atol=1e-5)


def build_embedder_without_head(embedder: Any) -> Any:
    made = type(embedder)(embedder.backbone, {**embedder.architecture, "dim": None}, embedder.preprocessing)
    made.find_text = embedder.find_text
    return made.eval()


def test_siglip_2_gets_lower_case(tmp_path: Path) -> None:
    embedder = tophit.load(tiny_towers("siglip", tmp_path))
    small, large = embedder.encode_text(["red mug"]), embedder.encode_text(["Red Mug"])
    assert np.abs(small - large).max() > 0.01
    kind = type(embedder.text.tokenizer)
    embedder.text.tokenizer.__class__ = type("GemmaTokenizerFast", (kind,), {})
    np.testing.assert_allclose(embedder.encode_text(["Red Mug"]), small)


def test_models_without_a_text_tower_say_which_have_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'small' has no text tower.*CLIP and SigLIP"):
        build_embedder("small", "random", dim=4).encode_text(["red"])
    with pytest.raises(UsageError, match=r"joint needs a backbone with a text tower.*CLIP"):
        build_embedder("small", "random", pooling="joint")
    other = build_embedder(tiny_towers("clip", tmp_path), pooling="cls")
    with pytest.raises(UsageError, match=r"pooled by 'cls'.*pooling: joint"):
        other.encode_text(["red"])
    with pytest.raises(UsageError, match=r"at least one word"):
        tophit.load(f"hf/{tmp_path}").encode_text([" "])


def test_a_damaged_tower_is_told(tmp_path: Path) -> None:
    tophit.load(tiny_towers("clip", tmp_path / "model")).save(tmp_path / "saved")
    (tmp_path / "saved" / "text" / "weights.safetensors").write_bytes(b"nothing")
    with pytest.raises(TophitError, match=r"weights\.safetensors|text tower"):
        tophit.load(tmp_path / "saved").encode_text(["red"])
    shutil.rmtree(tmp_path / "saved" / "text")
    assert not tophit.load(tmp_path / "saved").takes_words


def test_without_a_tokenizer_images_are_saved_and_it_is_told(tmp_path: Path) -> None:
    name = tiny_towers("clip", tmp_path / "model")
    for file in (tmp_path / "model").glob("tokenizer*"):
        file.unlink()
    with pytest.warns(UserWarning, match=r"Saved without its text tower"):
        tophit.load(name).save(tmp_path / "saved")
    assert not tophit.load(tmp_path / "saved").takes_words


def test_a_stranger_s_tower_makes_nothing_larger_than_its_file_and_runs_no_code(tmp_path: Path) -> None:
    tophit.load(tiny_towers("clip", tmp_path / "model")).save(tmp_path / "saved")
    tower = tmp_path / "saved" / "text"
    good = json.loads((tower / "tower.json").read_text())
    large = json.loads(json.dumps(good))
    large["config"]["text_config"]["num_hidden_layers"] = 4000
    (tower / "tower.json").write_text(json.dumps(large))
    with pytest.raises(TophitError, match=r"more weights than its file"):
        tophit.load(tmp_path / "saved").encode_text(["red"])
    (tower / "tower.json").write_text(json.dumps(good))
    settings = json.loads((tower / "tokenizer_config.json").read_text())
    settings |= {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}
    (tower / "tokenizer_config.json").write_text(json.dumps(settings))
    (tower / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    with contextlib.suppress(TophitError):
        tophit.load(tmp_path / "saved").encode_text(["red"])
    assert not (tmp_path / "ran").exists()


def test_a_siglip_of_free_shapes_is_refused_with_one_to_use(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.Siglip2Config().save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"NaFlex.*siglip2-base-patch16-224"):
        tophit.load(f"hf/{tmp_path}")
