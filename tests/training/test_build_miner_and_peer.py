"""Miners by name, and losses and miners of pytorch-metric-learning as pml/NAME."""

import sys

import pytest
import torch
import yaml
from pytorch_metric_learning import losses as peer_losses
from pytorch_metric_learning import miners as peer_miners

from tophit.errors import UsageError
from tophit.losses import TripletLoss
from tophit.mining import mine
from tophit.recipe import Recipe, make_recipe, read_recipe, recipe_fields
from tophit.training.building import build_loss, build_miner

X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) // 3


def recipe_with(**sections) -> Recipe:
    return make_recipe({"data": {"manifest": "x.csv"}, **sections})


@pytest.mark.parametrize("name", ["hard", "semi-hard", "balanced-hard", "uniform", "soft-hard", "distance-weighted"])
def test_a_miner_by_name_mines(name):
    for section in (name, {"name": name}):
        miner = build_miner(recipe_with(miner=section).miner)
        assert miner is not None
        torch.manual_seed(0)
        mined = miner(X, LABELS)
        torch.manual_seed(0)
        torch.testing.assert_close(mined, mine(X, LABELS, name))
    assert len(mined[0])


def test_fields_reach_the_miner():
    miner = build_miner(recipe_with(miner={"name": "semi-hard", "margin": 0.05, "every": True}).miner, normalize=False)
    assert miner is not None
    expected = mine(X, LABELS, "semi-hard", margin=0.05, every=True, normalize=False)
    torch.testing.assert_close(miner(X, LABELS), expected)
    assert build_miner(recipe_with().miner) is None
    assert build_miner(recipe_with(miner=None).miner) is None


def test_mistakes_are_named():
    with pytest.raises(UsageError, match=r"miner\.name: unknown value 'semi-hart'\. Did you mean 'semi-hard'\?"):
        recipe_with(miner="semi-hart")
    with pytest.raises(UsageError, match=r"miner\.margin: unknown key"):
        recipe_with(miner={"name": "hard", "margin": 1})
    with pytest.raises(UsageError, match=r"method\.name: unknown value 'projektion'\. Did you mean 'projection'\?"):
        recipe_with(method="projektion")
    with pytest.raises(UsageError, match=r"method\.hncm: unknown key"):
        recipe_with(method={"hncm": True})
    fields = {path for path, *_ in recipe_fields()}
    assert {"miner.margin (semi-hard)", "method.hncm (projection)", "loss.alpha (angular)"} <= fields


def test_a_loss_of_the_peer_by_name():
    recipe = recipe_with(loss={"name": "pml/TripletMarginLoss", "margin": 0.3})
    loss = build_loss(recipe.loss, 4, 4)
    assert isinstance(loss, peer_losses.TripletMarginLoss)
    assert loss.margin == 0.3
    assert yaml.safe_load(recipe.to_yaml())["loss"] == {"name": "pml/TripletMarginLoss", "margin": 0.3}
    assert make_recipe(yaml.safe_load(recipe.to_yaml())) == recipe
    proxies = build_loss(recipe_with(loss="pml/ProxyNCALoss").loss, 4, 7)
    assert isinstance(proxies, peer_losses.ProxyNCALoss)
    assert proxies.proxies.shape == (4, 7)


def test_a_miner_of_the_peer_by_name_feeds_a_loss_of_ours():
    miner = build_miner(recipe_with(miner={"name": "pml/TripletMarginMiner", "type_of_triplets": "semihard"}).miner)
    assert isinstance(miner, peer_miners.TripletMarginMiner)
    mined = miner(X, LABELS)
    torch.testing.assert_close(TripletLoss()(X, LABELS, mined), TripletLoss()(X, LABELS, triplets=mined))


def test_overrides_reach_sections_given_by_name(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("data: {manifest: x}\nmethod: projection\nloss: pml/TripletMarginLoss\n")
    recipe = read_recipe(path, ["method.hncm=true", "loss.margin=0.4"])
    assert recipe.method.name == "projection"
    assert recipe.method.hncm
    assert recipe.loss.arguments == {"margin": 0.4}


def test_mistakes_about_the_peer_are_named(monkeypatch):
    with pytest.raises(
        UsageError, match=r"loss\.name: .* no loss 'TripletMarginLos'. Did you mean 'pml/TripletMarginLoss'"
    ):
        build_loss(recipe_with(loss="pml/TripletMarginLos").loss, 4, 4)
    with pytest.raises(UsageError, match=r"miner\.name: .* no miner 'zzz'\. Choices: .*BatchHardMiner"):
        build_miner(recipe_with(miner="pml/zzz").miner)
    with pytest.raises(UsageError, match=r"loss: pml/TripletMarginLoss rejected .*margn.* It takes: margin, swap"):
        build_loss(recipe_with(loss={"name": "pml/TripletMarginLoss", "margn": 1}).loss, 4, 4)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.losses", None)
    with pytest.raises(UsageError, match=r"loss\.name: pml/NTXentLoss needs pytorch-metric-learning: pip install"):
        build_loss(recipe_with(loss="pml/NTXentLoss").loss, 4, 4)
