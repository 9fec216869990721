"""What comes from files of others is limited: it can't block, fill the memory, or reach the network."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

import tophit
from tophit.errors import TophitError, UsageError
from tophit.images.decode import BadImage, picture_size, read_image
from tophit.models import build_embedder
from tophit.models.weights import read_weights
from tophit.recipe import read_recipe
from tophit.recipe.yaml_text import parse_yaml


def test_aliases_of_aliases_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (tmp_path / "many.yaml").write_text("\n".join(lines))
    with pytest.raises(UsageError, match="with its aliases written out it has more than"):
        read_recipe(tmp_path / "many.yaml")
    (tmp_path / "merged.yaml").write_text(
        "\n".join(["m0: &m0 {a: 1}", *(f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 9)}]}}" for i in range(1, 12))])
    )
    with pytest.raises(UsageError, match="with its aliases written out it has more than"):
        read_recipe(tmp_path / "merged.yaml")
    (tmp_path / "itself.yaml").write_text("data: &a [*a]")
    with pytest.raises(UsageError, match="an alias contains itself"):
        read_recipe(tmp_path / "itself.yaml")
    (tmp_path / "deep.yaml").write_text("[" * 100_000)
    with pytest.raises(UsageError, match="is not YAML"):
        read_recipe(tmp_path / "deep.yaml")


def test_an_alias_or_two_are_fine() -> None:
    assert parse_yaml("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}") == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}
    assert parse_yaml("") is None


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_no_image_and_no_weights(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    for read in (read_image, picture_size):
        with pytest.raises(BadImage, match=f"is a {kind}, not a plain file"):
            read(path)
    with pytest.raises(TophitError, match=f"is a {kind}, not a plain file"):
        read_weights(str(path))


def test_a_header_of_safetensors_that_lies_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    huge = json.dumps({"w": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4 * 10**18]}}).encode()
    for content in (
        (2**63).to_bytes(8, "little") + b"{}",
        (200_000_000).to_bytes(8, "little") + b" " * 100,
        len(huge).to_bytes(8, "little") + huge,
        b"",
    ):
        path.write_bytes(content)
        with pytest.raises(TophitError, match="does not hold plain tensors"):
            read_weights(str(path))


def changed(folder: Path, part: str, name: str, value: Any) -> None:
    path = folder / "embedder.json"
    fields = json.loads(path.read_text())
    (fields[part] if part else fields)[name] = value
    path.write_text(json.dumps(fields))


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("architecture", "dim", 10**12),
        ("architecture", "dim", 2**20),
        ("architecture", "dim", -1),
        ("architecture", "dim", True),
        ("architecture", "p", float("nan")),
        ("architecture", "p", float("inf")),
        ("architecture", "levels", 10**9),
        ("architecture", "backbone", ["small"]),
        ("architecture", "backbone", "features/1000000000000"),
        ("preprocessing", "size", 10**9),
        ("preprocessing", "size", 0),
        ("preprocessing", "crop", 1e-300 * 0),
        ("preprocessing", "crop", float("nan")),
        ("preprocessing", "mean", [0.5]),
        ("preprocessing", "mean", [0.5, 0.5, float("nan")]),
        ("preprocessing", "std", [0.5, 0.5, 0.0]),
        ("", "more", "x" * 2_000_000),
        ("", "architecture", []),
    ],
)
def test_an_embedder_described_with_wrong_numbers_is_refused(
    part: str, name: str, value: Any, tmp_path: Path, tiny: Path
) -> None:
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    changed(tmp_path, part, name, value)
    with pytest.raises(TophitError, match=r"does not describe an embedder|does not fit|no backbone"):
        tophit.load(tmp_path)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    build_embedder("small", "random", dim=4, size=32).save(folder)
    return folder


@pytest.mark.parametrize("name", ["hf/some-one/model", "timm/hf-hub:some-one/model", "timm/hf_hub:some-one/model"])
def test_a_saved_embedder_never_asks_the_network_for_its_backbone(
    name: str, tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")

    def refuse(*arguments: Any, **more: Any) -> Any:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", refuse)
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    changed(tmp_path, "architecture", "backbone", name)
    with pytest.raises(TophitError, match=f"names '{name}' without its configuration"):
        tophit.load(tmp_path)


def test_a_configuration_larger_than_its_weights_is_refused(tmp_path: Path, tiny: Path) -> None:
    """It would ask for a terabyte, though its file has a few thousand numbers."""
    pytest.importorskip("transformers")
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    changed(tmp_path, "architecture", "backbone", "hf/some-one/model")
    huge = {"model_type": "dinov2", "hidden_size": 262_144, "num_hidden_layers": 4, "num_attention_heads": 4}
    changed(tmp_path, "architecture", "config", huge)
    with pytest.raises(TophitError, match=r"its configuration has .* weights, more than its file"):
        tophit.load(tmp_path)


def test_plain_files_are_still_read(tmp_path: Path) -> None:
    Image.new("RGB", (4, 3)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png").size == picture_size(tmp_path / "a.png") == (4, 3)
    (tmp_path / "link.png").symlink_to(tmp_path / "a.png")
    assert read_image(tmp_path / "link.png").size == (4, 3)
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "w.safetensors")
    assert read_weights(str(tmp_path / "w.safetensors"))["w"].tolist() == [1, 1]
    with pytest.raises(BadImage, match="no such file"):
        read_image(tmp_path / "missing.png")
    assert sys.getrecursionlimit() < 100_000  # which the deep YAML above must not need
