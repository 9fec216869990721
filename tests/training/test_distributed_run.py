"""torchrun with two processes: one run, the same log, weights and metrics as of one process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import save_file

from tophit.models import build_embedder

RECIPE: dict[str, Any] = {
    "device": "cpu",
    "embedder": {"backbone": "small", "weights": "random", "dim": 16, "size": 32, "trainable": "all"},
    "loss": {"name": "pnp", "temperature": 0.1},
    "batches": {"classes": 3, "per_class": 3, "chunk": 4},
    # Adam would turn a rounding error into a step of the learning rate.
    "optimizer": {"name": "sgd", "backbone": {"lr": 0.01}, "head": {"lr": 0.05}, "ema": 0.9, "clip": 1.0},
    "schedule": {"epochs": 3, "warmup_epochs": 1, "lr_warmup_steps": 2},
}


def run(processes: int, *arguments: object, check: int = 0) -> subprocess.CompletedProcess[str]:
    many = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m", "--", "tophit.cli"]
    start = many if processes > 1 else ["-m", "tophit.cli"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "COLUMNS": "200"}
    command = [sys.executable, *start, "train", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert (done.returncode != 0) == (check != 0), done.stdout + done.stderr
    return done


def assert_same_runs(one: Path, two: Path, rounding: float = 1e-5) -> None:
    """Logs, weights and test metrics are equal but for rounding."""
    assert len(lines(one)) == len(lines(two))
    for a, b in zip(lines(one), lines(two), strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert a[name] == pytest.approx(b[name], abs=rounding), (name, a, b)
    first, second = (torch.load(folder / "checkpoint.pt", weights_only=True) for folder in (one, two))
    torch.testing.assert_close(first["embedder"], second["embedder"], rtol=0, atol=rounding / 10)
    torch.testing.assert_close(first["average"], second["average"], rtol=0, atol=rounding / 10)
    results = [json.loads((folder / "result.json").read_text()) for folder in (one, two)]
    assert results[0]["test"] == pytest.approx(results[1]["test"], abs=1e-6)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_two_processes_make_the_run_of_one(pictures: Path, tmp_path: Path) -> None:
    """With an unreadable image, which only one of the processes meets."""
    data = shutil.copytree(pictures, tmp_path / "data")
    for name in ("class 1", "class 6"):
        (data / name / "broken.png").write_text("text")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        yaml.safe_dump({**RECIPE, "data": {"manifest": str(data), "validation_share": 0.25, "max_bad_images": 4}})
    )
    run(1, recipe, "--run", tmp_path / "one")
    done = run(2, recipe, "--run", tmp_path / "two")
    assert done.stdout.count("steps in") == 1
    assert_same_runs(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "one" / "bad_images.csv").read_text() == (tmp_path / "two" / "bad_images.csv").read_text()
    # An error is told and stops both.
    strict = run(2, recipe, "--run", tmp_path / "strict", "--set", "data.max_bad_images=0", check=1)
    assert "More unreadable images than data.max_bad_images allows" in strict.stderr


@pytest.mark.slow
def test_two_processes_learn_the_last_blocks_and_keep_the_same(pictures: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    state = build_embedder("small", "random", dim=16, size=32).backbone.state_dict()
    save_file({name: value.contiguous() for name, value in state.items()}, weights)
    part = {"weights": str(weights), "trainable": "last", "last": 2, "head_start": "pca"}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        yaml.safe_dump(
            {
                **RECIPE,
                "embedder": RECIPE["embedder"] | part,
                "batches": {"classes": 3, "per_class": 3},
                "data": {"manifest": str(pictures), "validation_share": 0.25, "activations": "float32"},
            }
        )
    )
    run(1, recipe, "--run", tmp_path / "one")
    run(2, recipe, "--run", tmp_path / "two")
    assert_same_runs(tmp_path / "one", tmp_path / "two", rounding=1e-4)
    kept = [json.loads((tmp_path / name / "result.json").read_text())["kept"] for name in ("one", "two")]
    assert kept[0]["kept"] == kept[1]["kept"]
    assert kept[0]["values"] == pytest.approx(kept[1]["values"], abs=1e-6)


@pytest.mark.slow
def test_two_processes_agree_on_confused_classes_prefixes_mixup_and_margins(pictures: Path, tmp_path: Path) -> None:
    newer = {
        "loss": {"name": "recall-at-k", "k": [1, 2], "temperature": 0.1, "mixup": True, "prefixes": [4]},
        "batches": {"sampler": "confused", "classes": 3, "per_class": 3, "chunk": 4},
        "consistency": {"weight": 0.5},
    }
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        yaml.safe_dump({**RECIPE, **newer, "data": {"manifest": str(pictures), "validation_share": 0.25}})
    )
    run(1, recipe, "--run", tmp_path / "one")
    run(2, recipe, "--run", tmp_path / "two")
    assert_same_runs(tmp_path / "one", tmp_path / "two")
