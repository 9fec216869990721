"""Proxies in a run: they train by name, are saved with their classes, are counted, and lead to their images."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close
from typer.testing import CliRunner

from tophit import load
from tophit.cli import app
from tophit.errors import UsageError
from tophit.losses import ProxyAnchorLoss, TextAlignedLoss, ThresholdConsistentLoss
from tophit.recipe import Recipe, make_recipe
from tophit.reporting.local_centres import local_centres
from tophit.training import train
from tophit.training.proxies import describe_centres, load_proxies, save_proxies
from tophit.training.run import Run

LOSSES: list[dict[str, Any]] = [
    {"name": "multi-proxy-anchor", "proxies_per_class": 2},
    {"name": "multi-proxy-anchor", "proxies_per_class": "auto", "variant": "data"},
    {"name": "multi-proxy-anchor", "proxies_per_class": 3, "variant": "all-pairs"},
    {"name": "soft-triple", "proxies_per_class": 2},
    {"name": "proxy-nca"},
    {"name": "proxy-nca++"},
]


def head_recipe(pictures: Path, loss: dict[str, Any], **sections: dict[str, Any]) -> Recipe:
    return make_recipe(
        {
            "data": {
                "manifest": str(pictures),
                "test_share": 0.25,
                "validation_share": 0.0,
                **sections.pop("data", {}),
            },
            "embedder": {"backbone": "small", "weights": "random", "dim": 8, "size": 32},
            "loss": loss,
            "batches": {"classes": 6, "per_class": 6},
            "optimizer": {"head": {"lr": 0.01}, "proxies": {"lr": 0.05}},
            "schedule": {"epochs": 40},
            **sections,
        }
    )


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: "-".join(map(str, loss.values())))
def test_each_proxy_loss_trains_by_name(pictures: Path, tmp_path: Path, loss: dict[str, Any]) -> None:
    result = train(head_recipe(pictures, loss), tmp_path / "run")
    log = [json.loads(line) for line in Run(tmp_path / "run").log_path.read_text().splitlines()]
    values = [line["loss"] for line in log if "loss" in line]
    assert values[-1] < 0.9 * values[0]
    assert result["test"]["recall@1"] > 0
    checkpoint = Run(tmp_path / "run").load_checkpoint()
    assert checkpoint is not None
    in_checkpoint = checkpoint["method"]["loss"]["proxies"].numpy().reshape(6, -1, 8)
    saved = load_proxies(tmp_path / "run")
    assert saved.classes == sorted(saved.classes)
    assert len(saved.classes) == 6
    np.testing.assert_allclose(
        saved.vectors, in_checkpoint / np.linalg.norm(in_checkpoint, axis=-1, keepdims=True), atol=1e-6
    )
    assert ("centres" in result) == (saved.vectors.shape[1] > 1)


def test_auto_reports_the_centres_that_each_class_kept(pictures: Path, tmp_path: Path) -> None:
    """A regulariser that outweighs the loss merges all ten proxies; without it all stay apart."""
    for weight, kept in ((1000.0, 1), (0.0, 10)):
        loss = {"name": "multi-proxy-anchor", "proxies_per_class": "auto", "regularizer": weight}
        folder = tmp_path / str(weight)
        recipe = head_recipe(pictures, loss, schedule={"epochs": 150 if weight else 2}, evaluation={"every": 150})
        result = train(recipe, folder)
        assert result["centres"]["proxies_per_class"] == 10
        assert result["centres"]["merge_distance"] == 0.1
        assert result["centres"]["kept"] == dict.fromkeys(load_proxies(folder).classes, kept)
        written = Run(folder).result()
        assert written is not None
        assert written["centres"] == result["centres"]
        assert f"closer than 0.1: {kept} in 6 classes" in describe_centres(result["centres"])


def test_the_command_line_tells_the_centres(pictures: Path, tmp_path: Path) -> None:
    recipe = head_recipe(pictures, {"name": "soft-triple", "proxies_per_class": "auto"}, schedule={"epochs": 1})
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml())
    for arguments in (["train", str(tmp_path / "recipe.yaml"), "--run"], ["train", "--resume"]):
        done = CliRunner().invoke(app, [*arguments, str(tmp_path / "run")])
        assert "Distinct centres of the 10 proxies per class, merging those closer than 0.1: 10 in 6" in " ".join(
            done.stdout.split()
        )


def test_proxies_are_those_of_the_best_epoch(pictures: Path, tmp_path: Path) -> None:
    """A run that ends where the best epoch of a longer one was has the same proxies."""

    def recipe(epochs: int) -> Recipe:
        schedule = {"epochs": epochs, "decay": "none"}
        embedder = {"backbone": "small", "weights": "random", "dim": 2, "size": 32}  # a plane is too small: it wavers
        data = {"validation_share": 0.6}
        return head_recipe(pictures, LOSSES[0], data=data, schedule=schedule, embedder=embedder)

    best = train(recipe(8), tmp_path / "long")["best_epoch"]
    assert best < 8
    train(recipe(best), tmp_path / "short")
    np.testing.assert_array_equal(load_proxies(tmp_path / "long").vectors, load_proxies(tmp_path / "short").vectors)


@pytest.mark.parametrize("merge", [1, 3])
def test_local_centres_lead_to_their_images(pictures: Path, tmp_path: Path, merge: int) -> None:
    loss = {"name": "multi-proxy-anchor", "proxies_per_class": 4}
    train(head_recipe(pictures, loss, data={"merge_classes": merge}), tmp_path / "run")
    found = local_centres(tmp_path / "run", k=3)
    classes = load_proxies(tmp_path / "run").classes
    assert [(centre.label, centre.proxy) for centre in found] == [(c, k) for c in classes for k in range(4)]
    assert all(label.count(" + ") == merge - 1 for label in classes)
    assert {c: sum(f.images for f in found if f.label == c) for c in classes} == dict.fromkeys(classes, 6 * merge)
    embedder = load(tmp_path / "run")
    for centre in found:
        assert len(centre.nearest) == 3
        similarities = [image.similarity for image in centre.nearest]
        assert similarities == sorted(similarities, reverse=True)
        vectors = embedder.encode([image.row.path for image in centre.nearest])
        np.testing.assert_allclose(vectors @ centre.vector, similarities, atol=1e-4)
    used = [centre for centre in found if centre.images]
    right = [image.row.label == centre.label for centre in used for image in centre.nearest]
    assert np.mean(right) > 0.5  # one in six by chance if nothing is merged


def test_a_run_without_proxies_says_so(pictures: Path, tmp_path: Path) -> None:
    train(head_recipe(pictures, {"name": "pnp"}, schedule={"epochs": 1}), tmp_path / "run")
    with pytest.raises(UsageError, match=r"There are no proxies in .*run: its loss has none"):
        load_proxies(tmp_path / "run")
    with pytest.raises(UsageError, match=r"There is no folder .*nowhere"):
        load_proxies(tmp_path / "nowhere")


@pytest.mark.parametrize("metric", ["ndcg@3", "ndcg@8", "MAP@R"])
def test_the_best_epoch_is_chosen_by_the_recipes_metric(pictures: Path, tmp_path: Path, metric: str) -> None:
    recipe = head_recipe(
        pictures, LOSSES[0], data={"validation_share": 0.4}, schedule={"epochs": 6}, evaluation={"metric": metric}
    )
    result = train(recipe, tmp_path / "run")
    log = [json.loads(line) for line in Run(tmp_path / "run").log_path.read_text().splitlines()]
    values = [line[f"validation/{metric}"] for line in log if f"validation/{metric}" in line]
    assert len(values) == 6
    assert result["validation"] == {metric: max(values)}
    assert values[result["best_epoch"] - 1] == max(values)


def test_a_loss_with_terms_keeps_the_proxies_of_the_loss(tmp_path: Path) -> None:
    loss = ProxyAnchorLoss(3, 4)
    names = torch.eye(3, 4)
    both = ThresholdConsistentLoss(TextAlignedLoss(loss, lambda x: x, images=names, texts=names))
    save_proxies(both, ["a", "b", "c"], tmp_path)
    saved = load_proxies(tmp_path)
    assert saved.classes == ["a", "b", "c"]
    expected = functional.normalize(loss.proxies.detach(), dim=1)[:, None]
    assert_close(torch.from_numpy(saved.vectors), expected)
