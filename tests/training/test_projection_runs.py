"""Runs by projection and with miners, through recipes: what is logged, what may be combined, and the table's rows."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tophit.errors import UsageError
from tophit.recipe import make_recipe, read_recipe, table_rows
from tophit.training import train

BASE: dict[str, Any] = {
    "embedder": {"backbone": "small", "weights": "random", "dim": 16, "size": 32, "trainable": "head"},
    "batches": {"classes": 3, "per_class": 3},
    "optimizer": {"backbone": {"lr": 3e-3}, "head": {"lr": 3e-3}},
    "schedule": {"epochs": 4},
    "evaluation": {"every": 4},
}


def run(pictures: Path, folder: Path, **sections: Any) -> list[dict[str, Any]]:
    """Train and return the log."""
    data = {"manifest": str(pictures), "test_share": 0.25, **sections.pop("data", {})}
    train(make_recipe({**BASE, "data": data, **sections}), folder)
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "loss",
    [
        *("contrastive", "triplet", "margin", "lifted-structure", "n-pair", "angular"),
        *("pnp", "topk-precision", "smooth-ap", "proxy-anchor", "pml/TripletMarginLoss"),
    ],
)
def test_every_loss_trains_by_projection_and_violations_are_logged(loss: str, pictures: Path, tmp_path: Path) -> None:
    log = run(pictures, tmp_path / "run", loss=loss, method={"name": "projection", "hncm": True, "rho": 2})
    steps = [line for line in log if "loss" in line]
    assert [line["projection"] for line in steps] == sorted(line["projection"] for line in steps)
    ends = [line for line in steps if "violated_positive" in line]
    assert [line["projection"] for line in ends] == list(range(len(ends)))
    assert len(ends) > 1
    assert all(0 <= line[f"violated_{kind}"] <= 1 for line in ends for kind in ("positive", "negative"))
    assert all(0 <= line["class_use_min"] <= line["class_use_max"] for line in ends)
    assert all((line["classes_unused"] > 0) == (line["class_use_min"] == 0) for line in ends)


def test_images_are_read_by_threads_with_the_same_result(pictures: Path, tmp_path: Path) -> None:
    embedder = {**BASE["embedder"], "trainable": "all"}
    method = {"name": "projection", "hncm": True, "rho": 2}
    for workers in (0, 2):
        run(pictures, tmp_path / str(workers), embedder=embedder, method=method, data={"workers": workers})
    one, other = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True) for name in ("0", "2"))
    torch.testing.assert_close(one["embedder"], other["embedder"], rtol=0, atol=0)
    torch.testing.assert_close(one["method"]["sampler"], other["method"]["sampler"], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("loss", "miner"),
    [
        ("triplet", "semi-hard"),
        ("contrastive", "balanced-hard"),
        ("margin", "distance-weighted"),
        ("pnp", "uniform"),
        ("pml/TripletMarginLoss", "hard"),
        ("triplet", "pml/BatchHardMiner"),
    ],
)
def test_losses_train_with_miners(loss: str, miner: str, pictures: Path, tmp_path: Path) -> None:
    log = run(pictures, tmp_path / "run", loss=loss, miner=miner)
    assert all(line["loss"] >= 0 for line in log if "loss" in line)


def test_the_boundary_of_the_margin_loss_is_trained(pictures: Path, tmp_path: Path) -> None:
    run(pictures, tmp_path / "run", loss="margin", method="projection")
    state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)
    assert state["method"]["loss"]["boundary"] != 1.2


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"miner": "hard"}, r"miner\.name: the loss proxy-anchor compares images with proxies"),
        ({"method": "projection", "miner": "hard", "loss": "triplet"}, r"miner\.name: the method projection chooses"),
        ({"method": "projection", "batches": {"sampler": "random"}}, r"batches: the method projection makes batches"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    sections: dict[str, Any], message: str, pictures: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        run(pictures, tmp_path / "run", **sections)


def test_the_18_rows_of_the_table_are_recipes() -> None:
    rows = table_rows()
    assert len([name for name in rows if name.startswith("profs/")]) == 18
    for name in rows:
        recipe = read_recipe(name)
        assert recipe.schedule.epochs == 10
        assert recipe.batches.classes * recipe.batches.per_class == 128
        assert recipe.method.name == ("plain" if name.endswith("baseline") else "projection")
    hncm = read_recipe("profs/triplet-hncm", ["method.rho=3"])
    assert hncm.method.hncm
    assert hncm.method.rho == 3
    assert read_recipe("profs/triplet-hncm", ["method.hncm=seeds"]).method.hncm == "seeds"
    with pytest.raises(UsageError, match=r"method\.hncm.* must be true, false, pool, seeds or chain"):
        read_recipe("profs/triplet-hncm", ["method.hncm=tree"])
    with pytest.raises(
        UsageError, match=r"recipe of that name \(dinov2/small, head, icons, .*Did you mean 'profs/triplet-hncm'"
    ):
        read_recipe("profs/triplet")
