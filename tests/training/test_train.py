"""Training through its public names: what a run holds, that it learns, and that bad files do not end it."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tophit
from tophit.data.folders import open_data
from tophit.data.manifest import ImageRow, Manifest, write_manifest
from tophit.errors import TophitError, UsageError
from tophit.losses import ProxyAnchorLoss
from tophit.models import build_embedder
from tophit.recipe import Recipe, make_recipe
from tophit.training import resume, train
from tophit.training.devices import choose_device
from tophit.training.evaluate import evaluate_rows, metrics_of_vectors
from tophit.training.optimizer import learning_rate_factor, make_optimizer
from tophit.training.run import data_of_run


def small_recipe(pictures: Path, **sections: dict[str, Any]) -> Recipe:
    fields: dict[str, Any] = {
        "data": {"manifest": str(pictures), "validation_share": 0.25},
        "embedder": {"backbone": "small", "weights": "random", "dim": 16, "size": 32, "trainable": "all"},
        "batches": {"classes": 3, "per_class": 3},
        "augment": {"scale": [0.8, 1.0]},
        "optimizer": {"backbone": {"lr": 3e-3}, "head": {"lr": 3e-3}},
        "schedule": {"epochs": 3},
    }
    for name, values in sections.items():
        fields[name] = {**fields.get(name, {}), **values}
    return make_recipe(fields)


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_run_holds_its_recipe_log_best_embedder_and_result(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures)
    result = train(recipe, tmp_path / "run")
    log = lines(tmp_path / "run")
    steps = [line for line in log if "loss" in line]
    assert [line["step"] for line in steps] == list(range(1, result["steps"] + 1))
    assert all(np.isfinite(line["loss"]) for line in steps)
    evaluated = [line for line in log if "validation/MAP@R" in line]
    assert [line["epoch"] for line in evaluated] == [1, 2, 3]
    best = max(line["validation/MAP@R"] for line in evaluated)
    assert result["validation"] == {"MAP@R": best}
    assert evaluated[result["best_epoch"] - 1]["validation/MAP@R"] == best
    assert (tmp_path / "run" / "recipe.yaml").read_text() == recipe.to_yaml()
    board = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    shown = {event.step: event.value for event in board.Scalars("loss")}  # of fast steps some are left out
    assert 1 in shown
    assert shown == pytest.approx({line["step"]: line["loss"] for line in steps if line["step"] in shown})
    assert len(board.Scalars("validation/MAP@R")) == 3
    test = open_data(str(pictures)).where("test")
    measured = evaluate_rows(tophit.load(tmp_path / "run"), test.rows)
    assert result["test"] == pytest.approx(dict(measured))


def test_training_improves_retrieval_of_unseen_classes(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, data={"validation_share": 0}, schedule={"epochs": 12, "warmup_epochs": 0})
    torch.manual_seed(0)
    untrained = build_embedder("small", "random", dim=16, size=32)
    before = evaluate_rows(untrained, open_data(str(pictures)).where("test").rows)
    result = train(recipe, tmp_path / "run")
    losses = [line["loss"] for line in lines(tmp_path / "run") if "loss" in line]
    assert np.mean(losses[-4:]) < 0.6 * np.mean(losses[:4])
    assert result["test"]["MAP@R"] > before["MAP@R"] + 0.05
    assert result["best_epoch"] == 12  # without validation classes the last epoch is kept


def test_a_head_trains_on_cached_features_and_leaves_the_backbone_alone(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, embedder={"trainable": "head"})
    train(recipe, tmp_path / "run")
    torch.manual_seed(recipe.seed)
    start = build_embedder("small", "random", dim=16, size=32).state_dict()
    end = tophit.load(tmp_path / "run").state_dict()
    for name in start:
        assert torch.equal(start[name], end[name]) == (not name.startswith("head.")), name


def test_in_warm_up_only_head_and_proxies_learn(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, schedule={"epochs": 1, "warmup_epochs": 1}, embedder={"freeze_batch_norm": False})
    train(recipe, tmp_path / "run")
    torch.manual_seed(recipe.seed)
    start = build_embedder("small", "random", dim=16, size=32).state_dict()
    end = tophit.load(tmp_path / "run").state_dict()
    assert all(torch.equal(start[name], end[name]) for name in start if name.startswith("backbone."))
    assert not torch.equal(start["head.weight"], end["head.weight"])


@pytest.mark.parametrize("frozen", [True, False])
def test_batch_norm_statistics_stay_as_loaded_if_frozen(pictures: Path, tmp_path: Path, frozen: bool) -> None:
    recipe = small_recipe(pictures, schedule={"warmup_epochs": 0}, embedder={"freeze_batch_norm": frozen})
    train(recipe, tmp_path / "run")
    mean = tophit.load(tmp_path / "run").state_dict()["backbone.layers.1.running_mean"]
    assert bool((mean == 0).all()) == frozen


def test_one_seed_fixes_everything(pictures: Path, tmp_path: Path) -> None:
    results = [train(small_recipe(pictures), tmp_path / name) for name in "ab"]
    assert results[0]["test"] == results[1]["test"]
    weights = [(tmp_path / name / "best" / "weights.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]
    fields = small_recipe(pictures).model_dump()
    train(Recipe.model_validate({**fields, "seed": 1}), tmp_path / "c")
    assert (tmp_path / "c" / "best" / "weights.safetensors").read_bytes() != weights[0]


def test_workers_do_not_change_the_losses(pictures: Path, tmp_path: Path) -> None:
    for workers in (0, 2):
        train(small_recipe(pictures, data={"workers": workers}, schedule={"epochs": 1}), tmp_path / str(workers))
    alone, many = ([line["loss"] for line in lines(tmp_path / name) if "loss" in line] for name in ("0", "2"))
    assert alone == many


@pytest.fixture
def flawed(pictures: Path, tmp_path: Path) -> Path:
    """The pictures with two unreadable files, as a manifest whose training half holds one of them."""
    folder = shutil.copytree(pictures, tmp_path / "flawed")
    rows = []
    for row in open_data(str(folder)):
        rows.append(row)
    for split in ("train", "test"):
        path = folder / f"bad {split}.png"
        path.write_text("text")
        label = next(row.label for row in rows if row.split == split)
        rows.append(ImageRow(path, label, split))
    write_manifest(Manifest(tuple(rows)), tmp_path / "flawed.csv")
    return tmp_path / "flawed.csv"


@pytest.mark.parametrize("trainable", ["all", "head"])
def test_bad_images_are_skipped_with_a_note_up_to_the_limit(flawed: Path, tmp_path: Path, trainable: str) -> None:
    recipe = small_recipe(flawed, data={"max_bad_images": 1}, embedder={"trainable": trainable})
    train(recipe, tmp_path / "run")
    noted = (tmp_path / "run" / "bad_images.csv").read_text()
    assert f"49,{flawed.parent / 'flawed' / 'bad train.png'}: not an image" in noted
    assert f"50,{flawed.parent / 'flawed' / 'bad test.png'}: not an image" in noted
    with pytest.raises(TophitError, match=r"than data\.max_bad_images allows \(0\)\. .*tophit data check"):
        train(small_recipe(flawed, embedder={"trainable": trainable}), tmp_path / "strict")


def test_a_folder_that_holds_a_run_is_not_overwritten(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, schedule={"epochs": 1})
    result = train(recipe, tmp_path / "run")
    with pytest.raises(UsageError, match="already holds a run; continue it with --resume"):
        train(recipe, tmp_path / "run")
    assert resume(tmp_path / "run") == json.loads(json.dumps(result))
    with pytest.raises(UsageError, match="There is no run in"):
        resume(tmp_path / "nothing")


def test_classes_of_one_image_can_be_learned_but_leave_nothing_to_measure(pictures: Path, tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / "single" / f"class {number}").mkdir(parents=True)
        shutil.copy(pictures / f"class {number}" / "0.png", tmp_path / "single" / f"class {number}")
    result = train(small_recipe(tmp_path / "single", schedule={"epochs": 2}), tmp_path / "run")
    assert (result["best_epoch"], result["validation"], result["test"]) == (2, {}, {})
    assert tophit.load(tmp_path / "run").dim == 16


def test_data_opened_for_a_run_has_the_runs_own_split(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, data={"test_share": 0.25}, schedule={"epochs": 1})
    fields = recipe.model_dump()
    train(Recipe.model_validate({**fields, "seed": 2, "data": {**fields["data"], "split_seed": 5}}), tmp_path / "run")
    opened = data_of_run(str(tmp_path / "run"), str(pictures))
    expected = open_data(str(pictures), 0.25, 5)
    assert set(opened.where("test").labels) == set(expected.where("test").labels)
    assert len(set(opened.where("validation").labels)) == 2
    assert set(open_data(str(pictures)).where("test").labels) != set(opened.where("test").labels)
    assert data_of_run("small", str(pictures)).rows == open_data(str(pictures)).rows


def test_a_run_is_not_continued_on_other_data(pictures: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(pictures, tmp_path / "data")
    train(small_recipe(folder, schedule={"epochs": 1}), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    next(folder.rglob("*.png")).unlink()
    with pytest.raises(TophitError, match=r"have changed since the run in .* began"):
        resume(tmp_path / "run")


def test_with_too_few_classes_for_validation_the_last_epoch_is_kept(pictures: Path, tmp_path: Path) -> None:
    result = train(small_recipe(pictures, data={"test_share": 0.7}, schedule={"epochs": 2}), tmp_path / "run")
    assert (result["best_epoch"], result["validation"]) == (2, {})


def test_a_damaged_checkpoint_is_named(pictures: Path, tmp_path: Path) -> None:
    train(small_recipe(pictures, schedule={"epochs": 1}), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run" / "checkpoint.pt").write_bytes(b"half a checkpoint")
    with pytest.raises(TophitError, match=r"checkpoint\.pt can't be read .* delete it to start the run again"):
        resume(tmp_path / "run")


def test_too_few_classes_to_learn_from_are_refused_before_a_run_is_made(tmp_path: Path, pictures: Path) -> None:
    folder = tmp_path / "few"
    shutil.copytree(pictures / "class 0", folder / "train" / "only")
    with pytest.raises(TophitError, match=r"has 1 class: 1 for training\. Training needs at least two classes"):
        train(small_recipe(folder, data={"validation_share": 0}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_loss_that_explodes_stops_the_run_with_the_step(pictures: Path, tmp_path: Path) -> None:
    recipe = small_recipe(pictures, optimizer={"head": {"lr": 1e30}, "backbone": {"lr": 1e30}})
    with pytest.raises(TophitError, match=r"The loss became (nan|inf) at step \d+; lower|training diverged; lower"):
        train(recipe, tmp_path / "run")


def test_each_group_has_its_own_rate_and_decay() -> None:
    recipe = make_recipe(
        {
            "data": {"manifest": "x"},
            "embedder": {"trainable": "all"},
            "optimizer": {"backbone": {"lr": 1.0}, "head": {"lr": 2.0, "weight_decay": 0.5}, "proxies": {"lr": 3.0}},
        }
    )
    embedder = build_embedder("small", "random", dim=4)
    loss = ProxyAnchorLoss(3, 4)
    groups = make_optimizer(recipe, embedder, loss).param_groups
    assert [(group["lr"], group["weight_decay"]) for group in groups] == [(1.0, 1e-4), (2.0, 0.5), (3.0, 1e-4)]
    assert groups[2]["params"][0] is loss.proxies


def test_learning_rates_fall_along_a_cosine_or_not_at_all() -> None:
    assert [learning_rate_factor("cosine", x) for x in (0, 0.5, 1)] == pytest.approx([1, 0.5, 0])
    assert learning_rate_factor("none", 0.7) == 1


def test_a_device_that_is_not_there_is_refused() -> None:
    assert choose_device("cpu").type == "cpu"
    with pytest.raises(UsageError, match="There is no device 'qpu'; choices: auto, cpu"):
        choose_device("qpu")


def test_roles_decide_who_searches_whom() -> None:
    """Two queries, two gallery images, one image that is both and must not find itself."""
    vectors = np.array([[1, 0], [0, 1], [1, 0.1], [0.1, 1], [1, 0.05]], np.float32)
    roles = ["query", "query", "gallery", "gallery", "both"]
    rows = [
        ImageRow(Path("x"), label, "test", role) for label, role in zip(["a", "b", "a", "b", "a"], roles, strict=True)
    ]
    metrics = metrics_of_vectors(vectors, rows, metrics=["recall@3"])
    assert metrics["recall@1"] == metrics["recall@3"] == 1
    assert len(metrics.per_query["recall@1"]) == 3
    assert metrics.per_query["precision@1"].tolist() == [1, 1, 1]
    assert metrics.per_query["mAP"][2] == 1  # its only relevant item besides itself comes first
    with pytest.raises(TophitError, match="no query or no gallery"):
        metrics_of_vectors(vectors[:2], rows[:2])
    with pytest.raises(TophitError, match="at least two readable images"):
        metrics_of_vectors(vectors[:1], rows[:1])
