"""LoRA: adapters of a transformer learn, and what is saved is an ordinary embedder."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.test_libraries import tiny_folder

import tophit
from tophit.errors import TophitError, UsageError
from tophit.models import build_embedder
from tophit.models.lora import add_adapters, is_adapter, merged_state
from tophit.recipe import Recipe, make_recipe, read_recipe, recipe_names
from tophit.training import Run, resume, train

pytest.importorskip("peft")


def adapted(name: str, last: int | None = None) -> Any:
    torch.manual_seed(0)
    embedder = build_embedder(name, dim=4, squash=None).eval()
    add_adapters(embedder, 2, 4.0, last)
    return embedder


def disturb(embedder: Any) -> None:
    with torch.no_grad():
        for name, weights in embedder.backbone.named_parameters():
            if is_adapter(name):
                weights.normal_(std=0.3)


@pytest.mark.parametrize("kind", ["dinov2", "siglip", "vit"])
def test_a_merged_embedder_equals_the_unmerged_one(kind: str, tmp_path: Path) -> None:
    name = tiny_folder(kind, tmp_path / "model")
    embedder = adapted(name)
    images = torch.randn(3, 3, embedder.preprocessing.size, embedder.preprocessing.size)
    with torch.inference_mode():
        plain = build_embedder(name, dim=4, squash=None).eval()
        torch.testing.assert_close(embedder.features(images), plain.features(images))  # B begins at 0
        disturb(embedder)
        assert (embedder.features(images) - plain.features(images)).abs().max() > 1e-3
        embedder.save(tmp_path / "saved")
        saved = tophit.load(tmp_path / "saved")
        torch.testing.assert_close(saved(images), embedder(images), atol=1e-5, rtol=1e-5)
    assert saved.state_dict().keys() == plain.state_dict().keys()


def test_the_merged_weight_is_that_of_the_paper(tmp_path: Path) -> None:
    """W + (alpha / rank) B A, by hand."""
    embedder = adapted(tiny_folder("vit", tmp_path))
    disturb(embedder)
    merged = merged_state(embedder)
    layer, module = next((n, m) for n, m in embedder.named_modules() if hasattr(m, "lora_A"))
    a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
    expected = module.base_layer.weight + 4.0 / 2 * b @ a
    torch.testing.assert_close(merged[f"{layer}.weight"], expected.detach())


def test_only_the_last_blocks_are_adapted_where_wanted(tmp_path: Path) -> None:
    embedder = adapted(tiny_folder("vit", tmp_path), last=1)
    layers = {name.split(".lora_")[0] for name, _ in embedder.backbone.named_parameters() if is_adapter(name)}
    assert layers
    assert all(".1." in layer for layer in layers), layers
    assert not any(weights.requires_grad for n, weights in embedder.backbone.named_parameters() if not is_adapter(n))


def test_a_backbone_without_linear_layers_is_refused() -> None:
    with pytest.raises(UsageError, match=r"embedder\.trainable: lora is for transformers, and 'small' has no linear"):
        add_adapters(build_embedder("small", "random", dim=4), 2, 4.0)


def test_without_peft_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    embedder = build_embedder(tiny_folder("vit", tmp_path), dim=4)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises((UsageError, TophitError), match="needs peft"):
        add_adapters(embedder, 2, 4.0)


def recipe_of(name: str, pictures: Path, backbone: str, **embedder: Any) -> Recipe:
    """Return a built-in recipe with a tiny backbone of the same architecture."""
    fields = read_recipe(name, data=str(pictures)).model_dump(mode="json")
    fields["embedder"] |= {"backbone": backbone, "size": None, "dim": 8, **embedder}
    fields["data"]["validation_share"] = 0.5
    fields["batches"] |= {"size": 12, "classes": 2, "per_class": 4}
    fields["schedule"]["epochs"] = 2
    fields["log"] = []
    return make_recipe(fields)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("dinov2/small", "dinov2"), ("dinov2/small-all", "dinov2"), ("siglip2/base-224", "siglip")],
)
def test_the_recipes_of_hub_models_train_tiny_models_of_their_architecture(
    name: str, kind: str, tmp_path: Path, pictures: Path
) -> None:
    recipe = recipe_of(name, pictures, tiny_folder(kind, tmp_path / "model"))
    result = train(recipe, tmp_path / "run")
    assert result.metrics
    assert result.before
    images = torch.randn(2, 3, *2 * [result.embedder.preprocessing.size])
    with torch.inference_mode():
        assert result.embedder(images).shape == (2, result.embedder.dim)
    trained = tophit.load(tmp_path / "run" / "trained")
    assert trained.trained == "all"
    assert not any(is_adapter(weights) for weights in trained.state_dict())
    start = tophit.load(tmp_path / "run" / "start").state_dict()
    changed = [k for k, v in trained.state_dict().items() if k.startswith("backbone.") and not torch.equal(v, start[k])]
    assert changed


def test_an_adapted_run_continues_exactly(tmp_path: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_of("dinov2/small", pictures, tiny_folder("dinov2", tmp_path / "model"))
    whole = train(recipe, tmp_path / "whole")
    real = Run.save_checkpoint

    class Killed(BaseException):
        pass

    def save(run: Run, state: dict[str, Any], keep: int = 1) -> None:
        real(run, state, keep)
        assert all(name.startswith("head.") or is_adapter(name) for name in state["embedder"])
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Run, "save_checkpoint", save)
        with pytest.raises(Killed):
            train(recipe, tmp_path / "killed")
    again = resume(tmp_path / "killed")
    assert {**again, "seconds": 0} == {**whole, "seconds": 0}


def test_nothing_contacts_the_network_but_a_hub_model_that_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a folder's model, its adapters, a saved embedder, or the list of recipes."""

    def refuse(*arguments: object) -> None:
        raise AssertionError(f"a connection to {arguments[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    embedder = adapted(tiny_folder("dinov2", tmp_path / "model"))
    embedder.save(tmp_path / "saved")
    fields = json.loads((tmp_path / "saved" / "embedder.json").read_text())
    fields["architecture"]["backbone"] = "hf/facebook/dinov2-small"
    (tmp_path / "saved" / "embedder.json").write_text(json.dumps(fields))
    assert tophit.load(tmp_path / "saved").dim == 4
    for name in recipe_names():
        read_recipe(name, data="x")


def test_the_recipes_name_models_of_the_hub_but_nothing_else_does() -> None:
    assert read_recipe("dinov2/small", data="x").embedder.backbone == "hf/facebook/dinov2-small"
    assert read_recipe("siglip2/base-224", data="x").embedder.backbone == "hf/google/siglip2-base-patch16-224"
    assert not make_recipe({"data": {"manifest": "x"}}).embedder.backbone.startswith("hf/")
