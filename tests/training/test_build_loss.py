"""Losses by name: the recipe's fields reach them, mistakes are named, and each trains a head."""

import pytest
import torch

from tophit import losses
from tophit.errors import UsageError
from tophit.recipe import Recipe, make_recipe, recipe_fields
from tophit.training.building import build_loss

DATA = {"data": {"manifest": "x.csv"}}


def recipe_with(**loss) -> Recipe:
    return make_recipe({**DATA, "loss": loss})


def test_a_loss_without_a_name_is_proxy_anchor():
    assert make_recipe(DATA).loss.name == "proxy-anchor"
    assert recipe_with(alpha=16).loss.name == "proxy-anchor"


@pytest.mark.parametrize(
    ("fields", "kind", "expected"),
    [
        ({"name": "proxy-anchor", "alpha": 8}, losses.ProxyAnchorLoss, {"alpha": 8, "margin": 0.1}),
        ({"name": "topk-precision"}, losses.TopKPrecisionLoss, {"k": 5, "margin": 0.1, "reduction": "sum"}),
        ({"name": "topk-precision", "k": 3, "reduction": "mean"}, losses.TopKPrecisionLoss, {"k": 3}),
        ({"name": "pnp"}, losses.PNPLoss, {"variant": "Dq", "alpha": 4, "b": 2, "temperature": 0.01}),
        ({"name": "pnp", "variant": "Ib", "include_self": True}, losses.PNPLoss, {"variant": "Ib"}),
        ({"name": "smooth-ap"}, losses.SmoothAPLoss, {"temperature": 0.01, "include_self": True}),
        ({"name": "contrastive"}, losses.ContrastiveLoss, {"margin": 1, "normalize": True}),
        ({"name": "triplet", "margin": 0.1}, losses.TripletLoss, {"margin": 0.1, "normalize": True}),
        ({"name": "margin", "boundary": 1.1}, losses.MarginLoss, {"margin": 0.2, "normalize": True}),
        ({"name": "lifted-structure"}, losses.LiftedStructureLoss, {"alpha": 1, "normalize": False}),
        ({"name": "n-pair", "norm_penalty": 0.02}, losses.NPairLoss, {"norm_penalty": 0.02, "normalize": False}),
        ({"name": "angular", "alpha": 36, "normalize": True}, losses.AngularLoss, {"alpha": 36, "normalize": True}),
        ({"name": "multi-proxy-anchor"}, losses.MultiProxyAnchorLoss, {"proxies_per_class": 10, "variant": "class"}),
        (
            {"name": "multi-proxy-anchor", "variant": "all-pairs", "proxies_per_class": "auto", "gamma": 0.2},
            losses.MultiProxyAnchorLoss,
            {"proxies_per_class": "auto", "variant": "all-pairs", "gamma": 0.2, "regularizer": 0.2, "alpha": 32},
        ),
        ({"name": "soft-triple", "reduction": "sum"}, losses.SoftTripleLoss, {"reduction": "sum", "margin": 0.01}),
        ({"name": "soft-triple", "scale": 8}, losses.SoftTripleLoss, {"scale": 8, "margin": 0.01, "regularizer": 0.2}),
        ({"name": "proxy-nca"}, losses.ProxyNCALoss, {"temperature": 1, "probability": False}),
        ({"name": "proxy-nca++"}, losses.ProxyNCAPlusPlusLoss, {"temperature": 1 / 9, "probability": True}),
    ],
)
def test_fields_reach_the_loss(fields, kind, expected):
    loss = build_loss(recipe_with(**fields).loss, classes=3, dim=4)
    assert type(loss) is kind
    assert {key: getattr(loss, key) for key in expected} == expected
    assert loss(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])).shape == ()


def test_defaults_are_those_of_the_loss_itself():
    kinds = {
        "topk-precision": losses.TopKPrecisionLoss,
        "pnp": losses.PNPLoss,
        "multi-proxy-anchor": lambda: losses.MultiProxyAnchorLoss(3, 4),
        "soft-triple": lambda: losses.SoftTripleLoss(3, 4),
        "proxy-nca": lambda: losses.ProxyNCALoss(3, 4),
        "contrastive": losses.ContrastiveLoss,
        "triplet": losses.TripletLoss,
        "margin": losses.MarginLoss,
        "lifted-structure": losses.LiftedStructureLoss,
        "n-pair": losses.NPairLoss,
        "angular": losses.AngularLoss,
    }
    for name, kind in kinds.items():
        built, plain = build_loss(recipe_with(name=name).loss, 3, 4), kind()
        assert {k: v for k, v in vars(built).items() if k[0] != "_"} == {
            k: v for k, v in vars(plain).items() if k[0] != "_"
        }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "pnpp"}, r"loss.name: unknown value 'pnpp'. Did you mean 'pnp'\? Choices: .*proxy-anchor, proxy-nca"),
        ({"name": "pnp", "temprature": 1}, r"loss.temprature: unknown key. Did you mean 'temperature'\?"),
        (
            {"name": "pnp", "k": 5},
            r"loss.k: unknown key. Choices: alpha, b, include_self, name, normalize, prefixes, temp",
        ),
        ({"name": "pnp", "variant": "Dx"}, r"loss.variant: unknown value 'Dx'..* Choices: O, Iu, Ib, Ds, Dq."),
        ({"name": "topk-precision", "k": 0}, r"loss.k: Input should be greater than or equal to 1, got 0. Length"),
        (
            {"name": "soft-triple", "proxies_per_class": "ten"},
            r"loss.proxies_per_class: must be a whole number of at least 1, or auto, got 'ten'. Prox",
        ),
        ({"name": "multi-proxy-anchor", "proxies_per_class": 0}, r"loss.proxies_per_class: .*, got 0"),
        ({"alfa": 1}, r"loss.alfa: unknown key. Did you mean 'alpha'\? Choices: alpha, margin, name, normalize."),
    ],
)
def test_mistakes_are_named_with_path_and_choices(fields, message):
    with pytest.raises(UsageError, match=message):
        recipe_with(**fields)
    with pytest.raises(UsageError, match="loss: must be a section"):
        make_recipe({**DATA, "loss": 3})


def test_recipe_is_read_back_from_its_own_yaml():
    import yaml

    recipe = recipe_with(name="pnp", variant="Ds")
    assert make_recipe(yaml.safe_load(recipe.to_yaml())) == recipe


def test_the_explanation_lists_each_loss():
    fields = {path: (kind, default) for path, kind, default, _ in recipe_fields()}
    names = fields["loss.name"][0].split(" | ")
    assert {"proxy-anchor", "topk-precision", "pnp", "smooth-ap", "package.module:Name"} < set(names)
    assert {"multi-proxy-anchor", "soft-triple", "proxy-nca", "proxy-nca++"} < set(names)
    assert {"contrastive", "n-pair", "pml/NAME"} < set(names)
    assert fields["loss.name"][1] == "proxy-anchor"
    assert fields["loss.proxies_per_class (multi-proxy-anchor)"] == ("int | auto", "10")
    assert fields["loss.k (topk-precision)"] == ("int", "5")
    assert fields["loss.alpha (pnp)"] == ("float", "4.0")
    assert fields["loss.alpha"] == ("float", "32.0")
    assert fields["loss.include_self (smooth-ap)"] == ("bool", "true")
