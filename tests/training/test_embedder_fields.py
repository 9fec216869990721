"""What the recipe's embedder section says, seen in what a run learns and saves."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tophit
from tophit.errors import UsageError
from tophit.models import build_embedder
from tophit.recipe import make_recipe
from tophit.training import train


def fields(pictures: Path, **embedder: Any) -> dict[str, Any]:
    base = {"backbone": "small", "weights": "random", "dim": 16, "size": 32, "trainable": "all"}
    return {
        "data": {"manifest": str(pictures), "validation_share": 0},
        "embedder": base | embedder,
        "batches": {"classes": 3, "per_class": 3},
        "optimizer": {"backbone": {"lr": 3e-3, "weight_decay": 0.1}, "head": {"lr": 3e-3}},
        "schedule": {"epochs": 1, "warmup_epochs": 0},
    }


@pytest.mark.parametrize("frozen", [True, False])
def test_batch_norms_scale_and_shift_stay_as_loaded_if_frozen(pictures: Path, tmp_path: Path, frozen: bool) -> None:
    train(make_recipe(fields(pictures, freeze_batch_norm_weights=frozen)), tmp_path / "run")
    learned = tophit.load(tmp_path / "run").state_dict()
    assert bool((learned["backbone.layers.1.weight"] == 1).all()) == frozen
    assert bool((learned["backbone.layers.1.bias"] == 0).all()) == frozen
    torch.manual_seed(0)
    start = build_embedder("small", "random", dim=16, size=32).state_dict()
    assert not torch.equal(start["backbone.layers.0.weight"], learned["backbone.layers.0.weight"])


def test_a_learned_power_moves_and_is_saved_with_the_embedder(pictures: Path, tmp_path: Path) -> None:
    train(make_recipe(fields(pictures, pooling="gem", learn_p=True, p=2.5)), tmp_path / "run")
    learned = tophit.load(tmp_path / "run")
    assert learned.state_dict()["pooling.p"] != 2.5
    assert learned.architecture["learn_p"] is True


@pytest.mark.parametrize("pooling", ["max", "rmac"])
def test_pooling_layer_norm_and_no_head_train_and_load(pooling: str, pictures: Path, tmp_path: Path) -> None:
    recipe = make_recipe(fields(pictures, pooling=pooling, levels=2, layer_norm=True, dim=None))
    train(recipe, tmp_path / "run")
    learned = tophit.load(tmp_path / "run")
    assert learned.dim == 256
    assert isinstance(learned.head[0], torch.nn.LayerNorm)  # type: ignore[index]
    features = torch.rand(3, 256) * 5
    expected = torch.nn.functional.normalize(features - features.mean(1, keepdim=True))
    torch.testing.assert_close(learned.embed_features(features), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("embedder", "reason"),
    [
        ({"learn_p": True}, r"embedder\.trainable: .*learn_p needs pooling: gem"),
        (
            {"learn_p": True, "pooling": "gem", "trainable": "head"},
            r"embedder\.trainable: .*learn_p needs pooling: gem",
        ),
        ({"dim": None, "trainable": "head"}, r"embedder\.trainable: .*no head to train"),
        ({"pooling": "maxx"}, r"embedder\.pooling: unknown value 'maxx'\. Did you mean 'max'"),
    ],
)
def test_what_can_not_be_is_told_with_its_path(embedder: dict[str, Any], reason: str, pictures: Path) -> None:
    with pytest.raises(UsageError, match=reason):
        make_recipe(fields(pictures, **embedder))


def test_embedders_saved_before_these_fields_keep_their_fingerprints(tmp_path: Path) -> None:
    """The digest was printed by the version before; an index made then still knows its embedder."""
    embedder = build_embedder("small", "random", "gem", dim=4, size=32)
    for i, (_, value) in enumerate(sorted(embedder.state_dict().items())):
        if value.is_floating_point():
            value.fill_(1 / (i + 1))
    embedder.save(tmp_path)
    description = json.loads((tmp_path / "embedder.json").read_text())
    assert set(description["architecture"]) == {"backbone", "pooling", "p", "dim"}
    assert set(description["preprocessing"]) == {"size", "crop", "mean", "std", "squash"}
    loaded = tophit.load(tmp_path)
    assert loaded.fingerprint() == "6ce1d310e42294d7cb141aba51e926b5"
