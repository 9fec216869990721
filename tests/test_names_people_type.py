"""Names as people type them: other spellings, papers' names, and names that belong to another section."""

import pytest

from tophit.errors import UsageError
from tophit.recipe import make_recipe, merged, read_recipe


@pytest.mark.parametrize(
    ("field", "typed", "meant"),
    [
        ("loss", "topk", "topk-precision"),
        ("loss", "top-k", "topk-precision"),
        ("loss", "PNP", "pnp"),
        ("loss", "mpa", "multi-proxy-anchor"),
        ("loss", "MPA", "multi-proxy-anchor"),
        ("loss", "smoothap", "smooth-ap"),
        ("loss", "proxy_anchor", "proxy-anchor"),
        ("loss", "ProxyNCA++", "proxy-nca++"),
        ("miner", "semihard", "semi-hard"),
        ("method", "profs", "projection"),
        ("method", "THSG", "generation"),
    ],
)
def test_a_name_leads_where_it_is_meant_in_overrides_and_files(field: str, typed: str, meant: str) -> None:
    assert getattr(read_recipe(None, ["data.manifest=x", f"{field}={typed}"]), field).name == meant
    assert getattr(read_recipe(None, ["data.manifest=x", f"{field}.name={typed}"]), field).name == meant
    assert getattr(make_recipe({"data": {"manifest": "x"}, field: typed}), field).name == meant


def test_the_same_loss_by_another_name_keeps_its_settings() -> None:
    base = {"data": {"manifest": "x"}, "loss": {"name": "multi-proxy-anchor", "alpha": 8.0}}
    assert make_recipe(merged(base, {"loss": {"name": "mpa", "margin": 0.3}})).loss.alpha == 8.0
    assert make_recipe(merged(base, {"loss": {"name": "proxy-anchor"}})).loss.alpha == 32.0  # another loss: its own


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("loss=profs", r"'profs' is a method: set method=profs\."),
        ("loss=thsg", r"'thsg' is a method: set method=thsg\."),
        ("method=pnp", r"'pnp' is a loss: set loss=pnp\."),
        ("loss=triplet-semi", r"the loss triplet with the miner semi-hard: set loss=triplet and miner=semi-hard"),
        ("loss=margin_distance", r"the loss margin with the miner distance-weighted"),
    ],
)
def test_a_name_of_another_section_is_told_where_it_belongs(override: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        read_recipe(None, ["data.manifest=x", override])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("profs", r"'profs' is a paper with the recipes profs/cars196, .*tophit train head --set method=profs"),
        ("top-k", r"the recipes topk/cars196, .*tophit train head --set loss=top-k"),
        ("PNP", r"the recipes pnp/inaturalist, .*tophit train head --set loss=PNP"),
        ("smoothap", r"There is no recipe 'smoothap'\. On your own images: tophit train head --set loss=smoothap"),
    ],
)
def test_a_paper_or_loss_as_a_recipe_is_told_what_to_type(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        read_recipe(name, data="x")
