"""The option data.merge_classes in a whole run: training classes merge, validation and test classes do not."""

import json

import numpy as np
import pytest
from PIL import Image

from tophit.recipe import make_recipe
from tophit.training import train
from tophit.training.run import Run


@pytest.fixture
def split_pictures(tmp_path):
    """Twelve training classes and four test classes of four noisy pictures."""
    generator = np.random.default_rng(0)
    for split, classes in (("train", 12), ("test", 4)):
        for label in range(classes):
            folder = tmp_path / "set" / split / f"{split}{label:02}"
            folder.mkdir(parents=True)
            colour = generator.integers(0, 200, 3)
            for i in range(4):
                noise = generator.integers(0, 50, (16, 16, 3))
                Image.fromarray((colour + noise).astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "set"


@pytest.mark.parametrize(("merge", "classes"), [(1, 9), (3, 3)])
def test_only_training_classes_merge(split_pictures, tmp_path, merge, classes):
    recipe = make_recipe(
        {
            "data": {"manifest": str(split_pictures), "merge_classes": merge, "validation_share": 0.25},
            "embedder": {"backbone": "small", "weights": "random", "dim": 8, "size": 16},
            "batches": {"classes": 3, "per_class": 4},
            "schedule": {"epochs": 1},
        }
    )
    result = train(recipe, tmp_path / "run")
    checkpoint = Run(tmp_path / "run").load_checkpoint()
    assert checkpoint is not None
    assert checkpoint["method"]["loss"]["proxies"].shape[0] == classes  # 12 classes, 3 of them for validation
    assert result["test"]["recall@1"] > 0


@pytest.mark.parametrize(
    "loss", [{"name": "pnp"}, {"name": "smooth-ap"}, {"name": "topk-precision"}], ids=lambda loss: loss["name"]
)
def test_each_ranking_loss_trains_by_name(split_pictures, tmp_path, loss):
    recipe = make_recipe(
        {
            "data": {"manifest": str(split_pictures), "validation_share": 0.0},
            "embedder": {"backbone": "small", "weights": "random", "dim": 8, "size": 16},
            "loss": loss,
            "batches": {"classes": 12, "per_class": 4},
            "optimizer": {"head": {"lr": 0.01}},
            "schedule": {"epochs": 30},
        }
    )
    train(recipe, tmp_path / "run")
    lines = [json.loads(line) for line in Run(tmp_path / "run").log_path.read_text().splitlines()]
    log = [line["loss"] for line in lines if "loss" in line]
    assert log[-1] < 0.8 * log[0]
