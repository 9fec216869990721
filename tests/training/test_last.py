"""embedder.trainable: last: the same training as of the whole network, without running what is frozen."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.test_train import lines, small_recipe

import tophit
from tophit.batches import BalancedBatchSampler
from tophit.errors import UsageError
from tophit.images.decode import read_image
from tophit.losses import ProxyAnchorLoss
from tophit.methods import Stepper
from tophit.models import build_embedder
from tophit.models.cut import stage_tensors
from tophit.models.exported import export_embedder
from tophit.progress import View
from tophit.training import train
from tophit.training.activation_source import ActivationSource
from tophit.training.building import make_embedder, make_sampler
from tophit.training.run_rows import rows_of
from tophit.training.sources import BadImages

PLAIN_VIEWS = {"scale": [1.0, 1.0], "flip": False, "views": 0}
METHODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "projection": {"method": {"name": "projection", "rho": 4}, "loss": {"name": "triplet"}},
    "generation": {"method": {"name": "generation"}, "loss": {"name": "n-pair"}},
    "everything": {
        "optimizer": {"ema": 0.9, "layer_decay": 0.5, "backbone": {"lr": 3e-3}},
        "schedule": {"epochs": 5, "unfreeze_epochs": 1},
        "embedder": {"freeze_batch_norm": False, "pooling": "gem", "learn_p": True},
    },
}


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in lines(run) if "loss" in line]


@pytest.mark.parametrize("name", METHODS)
def test_last_with_all_blocks_and_plain_views_equals_all_step_for_step(
    pictures: Path, tmp_path: Path, name: str
) -> None:
    sections = METHODS[name]
    for trainable in ("all", "last"):
        embedder = {**sections.get("embedder", {}), "trainable": trainable, "last": 99}
        train(
            small_recipe(pictures, **{**sections, "embedder": embedder, "augment": PLAIN_VIEWS}), tmp_path / trainable
        )
    whole, last = losses(tmp_path / "all"), losses(tmp_path / "last")
    assert len(whole) >= 6
    np.testing.assert_allclose(last, whole, rtol=0, atol=1e-5)
    states = [tophit.load(tmp_path / each).state_dict() for each in ("all", "last")]
    torch.testing.assert_close(states[0], states[1], rtol=1e-4, atol=1e-5)


def test_last_two_blocks_learn_as_in_a_loop_that_runs_the_whole_network(pictures: Path, tmp_path: Path) -> None:
    """A literal loop over pictures: blocks 1 and 2 frozen, BatchNorm in evaluation, AdamW on the rest."""
    recipe = small_recipe(
        pictures,
        data={"activations": "float32", "validation_share": 0},
        embedder={"trainable": "last", "last": 2},
        augment=PLAIN_VIEWS,
        schedule={"warmup_epochs": 0, "decay": "none"},
    )
    train(recipe, tmp_path / "run")
    rows = rows_of(recipe).train.rows
    labels = np.unique([row.label for row in rows], return_inverse=True)[1]
    torch.manual_seed(recipe.seed)
    embedder = build_embedder("small", "random", dim=16, size=32).eval()
    loss = ProxyAnchorLoss(labels.max() + 1, 16)
    for name, weights in embedder.backbone.named_parameters():
        weights.requires_grad_(int(name.split(".")[1]) >= 8)  # four layers a block
    learned = [weights for weights in embedder.parameters() if weights.requires_grad]
    groups = [
        {"params": learned, "lr": 3e-3, "weight_decay": 1e-4},
        {"params": list(loss.parameters()), "lr": 1e-2, "weight_decay": 1e-4},
    ]
    optimizer = torch.optim.AdamW(groups)
    images = torch.stack([torch.from_numpy(embedder.preprocessing(read_image(row.path))) for row in rows])
    sampler = BalancedBatchSampler(labels.tolist(), 3, 3, recipe.seed)
    expected = []
    for epoch in range(3):
        sampler.epoch = epoch
        for batch in sampler:
            optimizer.zero_grad()
            value = loss(embedder(images[batch]), torch.as_tensor(labels[batch]))
            value.backward()
            optimizer.step()
            expected.append(value.item())
    np.testing.assert_allclose(losses(tmp_path / "run"), expected, rtol=0, atol=1e-5)
    kept = tophit.load(tmp_path / "run")
    torch.testing.assert_close(kept.state_dict(), embedder.state_dict(), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned the last block, from three views of each image."""
    folder = tmp_path_factory.mktemp("last") / "run"
    recipe = small_recipe(
        pictures, embedder={"trainable": "last", "last": 1}, augment={"views": 3}, schedule={"epochs": 6}
    )
    train(recipe, folder)
    return folder


def test_only_the_last_block_and_the_head_change(run: Path) -> None:
    torch.manual_seed(0)
    before, after = build_embedder("small", "random", dim=16, size=32), tophit.load(run)
    stages = zip(stage_tensors(before.backbone), stage_tensors(after.backbone), strict=True)
    same = [all(torch.equal(first[name], second[name]) for name in first) for first, second in stages]
    assert same == [True, True, True, False]
    assert not torch.equal(after.head.get_parameter("weight"), before.head.get_parameter("weight"))
    checkpoint = torch.load(run / "checkpoint.pt", weights_only=True)
    assert {name.split(".")[2] for name in checkpoint["embedder"] if name.startswith("backbone.")} == {"12", "13"}


def test_the_result_is_an_ordinary_embedder(run: Path, pictures: Path, tmp_path: Path) -> None:
    embedder = tophit.load(run)
    assert json.loads((run / "best" / "embedder.json").read_text())["trained"] == "last"
    paths = sorted(pictures.rglob("*.png"))[:3]
    vectors = embedder.encode(paths)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    exported = export_embedder(embedder, tmp_path / "model.onnx")
    assert exported.difference is not None
    assert exported.difference < 1e-4


def test_a_second_seed_shares_the_views(
    run: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network and the data are the same, so nothing is computed again; the order of the views differs."""
    monkeypatch.setattr("tophit.embedding.activations._fill", lambda *_: pytest.fail("computed again"))
    recipe = small_recipe(
        pictures, embedder={"trainable": "last", "last": 1}, augment={"views": 3}, data={"validation_share": 0.25}
    )
    train(recipe, tmp_path / "again")
    same_start = losses(run)[: len(losses(tmp_path / "again"))]
    assert losses(tmp_path / "again")[0] == same_start[0]


def test_features_for_the_start_of_the_head_are_kept_for_the_next_run(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPHIT_CACHE", str(tmp_path / "cache"))
    embedder = {"trainable": "last", "last": 1, "head_start": "pca"}
    train(small_recipe(pictures, embedder=embedder), tmp_path / "run")
    assert list((tmp_path / "cache" / "features").glob("*.sqlite"))


def test_views_are_learned_from_in_turn(pictures: Path) -> None:
    recipe = small_recipe(pictures, embedder={"trainable": "last", "last": 1}, augment={"views": 3})
    rows = rows_of(recipe)
    embedder, bad = make_embedder(recipe), BadImages(0, print)
    deal = partial(make_sampler, recipe)
    source = ActivationSource(recipe, embedder, rows.train, rows.validation, bad, View(), Stepper(), deal)
    shown = [source.inputs(torch.arange(4), epoch) for epoch in range(6)]
    for row in range(4):
        views = torch.stack([each[row] for each in shown]).flatten(1).float()
        assert len(torch.unique(views[:3], dim=0)) == 3
        assert torch.equal(views[:3], views[3:])


@pytest.mark.parametrize(
    ("embedder", "message"),
    [
        ({"trainable": "last", "last": 0}, r"embedder\.last: .*greater than or equal to 1"),
        ({"trainable": "most"}, r"embedder\.trainable: .*Choices: head, last, lora, all"),
    ],
)
def test_a_wrong_cut_is_refused(pictures: Path, embedder: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        small_recipe(pictures, embedder=embedder)


def test_too_large_a_cache_is_refused_before_training(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, embedder={"trainable": "last"}, data={"activations_gb": 1e-5})
    with pytest.raises(UsageError, match=r"data\.activations_gb allows .*What would fit: "):
        train(recipe, tmp_path / "run")
