"""A run that is killed or stopped at any moment continues as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

RECIPE = {
    "embedder": {"backbone": "small", "weights": "random", "dim": 16, "size": 32},
    "batches": {"classes": 3, "per_class": 2},
    "optimizer": {"backbone": {"lr": 3e-3}, "head": {"lr": 3e-3}},
    "schedule": {"epochs": 40},
    "evaluation": {"every": 5},
}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@pytest.fixture
def recipe(tmp_path: Path, pictures: Path) -> Callable[..., Path]:
    def write(trainable: str, method: dict[str, Any] | None = None) -> Path:
        fields = {**RECIPE, **(method or {}), "data": {"manifest": str(pictures), "validation_share": 0.25}}
        fields["embedder"] = {**RECIPE["embedder"], "trainable": trainable}
        fields["checkpoint"] = {"minutes": 0.1 / 60}
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(fields))
        return path

    return write


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tophit.cli", "train", *map(str, arguments)],
        env={**os.environ, **ONE_THREAD},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def logged_steps(run: Path) -> int:
    log = run / "metrics.jsonl"
    return log.read_text().count('"loss"') if log.exists() else 0


def wait_for_steps(process: subprocess.Popen[str], run: Path, steps: int) -> None:
    """Wait until the run has logged so many steps; it flushes its log at every checkpoint."""
    while logged_steps(run) < steps:
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def assert_same_run(one: Path, other: Path) -> None:
    for name in ("best/weights.safetensors", "best/embedder.json", "metrics.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    first, second = (torch.load(run / "checkpoint.pt", weights_only=True) for run in (one, other))
    for part in ("embedder", "method"):
        torch.testing.assert_close(first[part], second[part], rtol=0, atol=0)


PROJECTION = {"method": {"name": "projection", "hncm": True, "rho": 4}, "loss": "triplet"}
CONFUSED = {
    "loss": {"name": "recall-at-k", "k": [1, 2], "mixup": True, "prefixes": [4]},
    "batches": {"sampler": "confused", "classes": 3, "per_class": 3, "mine_every": 3},
    "consistency": {"weight": 0.5},
}
MINED = {"loss": "margin", "miner": "soft-hard"}


@pytest.mark.parametrize(
    ("trainable", "method"),
    [
        pytest.param("all", {}, id="all", marks=pytest.mark.slow),
        pytest.param("head", {}, id="head"),
        pytest.param("last", {}, id="last"),
        pytest.param("head", PROJECTION, id="head-projection", marks=pytest.mark.slow),
        pytest.param("all", PROJECTION, id="all-projection", marks=pytest.mark.slow),
        pytest.param("head", CONFUSED, id="head-confused", marks=pytest.mark.slow),
        pytest.param("all", CONFUSED, id="all-confused", marks=pytest.mark.slow),
        pytest.param("head", MINED, id="head-mined", marks=pytest.mark.slow),
        pytest.param("all", {"method": "daml", "loss": "triplet"}, id="all-daml", marks=pytest.mark.slow),
        pytest.param("head", {"method": "hdml", "loss": "triplet"}, id="head-hdml", marks=pytest.mark.slow),
    ],
)
def test_killed_at_random_steps_and_resumed_it_ends_with_the_same_weights(
    recipe: Callable[..., Path], tmp_path: Path, tophit: Callable, trainable: str, method: dict[str, Any]
) -> None:
    """SIGKILL, twice, at steps drawn at random; the seed is printed so that a failure can be repeated."""
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    path = recipe(trainable, method)
    tophit("train", path, "--run", tmp_path / "whole", **ONE_THREAD)
    killed = tmp_path / "killed"
    arguments: list[object] = [path, "--run", killed]
    kills = sorted(random.Random(seed).sample(range(1, 60), 2))
    for step in kills:
        process = start(*arguments)
        wait_for_steps(process, killed, step)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (killed / "result.json").exists()
        arguments = ["--resume", killed]
    tophit("train", "--resume", killed, **ONE_THREAD)
    assert_same_run(tmp_path / "whole", killed)


def test_ctrl_c_and_sigterm_stop_cleanly_and_say_how_to_resume(
    recipe: Callable[..., Path], tmp_path: Path, tophit: Callable
) -> None:
    run = tmp_path / "stopped"
    arguments: list[object] = [recipe("all"), "--run", run]
    for number in (signal.SIGINT, signal.SIGTERM):
        before = logged_steps(run)
        process = start(*arguments)
        wait_for_steps(process, run, before + 3)
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 130
        assert f"Continue with: tophit train --resume {run}" in errors.replace("\n", " ")
        assert "Traceback" not in errors
        arguments = ["--resume", run]
    tophit("train", "--resume", run, **ONE_THREAD)
    tophit("train", tmp_path / "recipe.yaml", "--run", tmp_path / "whole", **ONE_THREAD)
    assert_same_run(tmp_path / "whole", run)


STOPPED_IN_THE_TEST = """
import os, signal, sys
from tophit.errors import Interrupted
from tophit.progress import View
from tophit.recipe import read_recipe
from tophit.training import train

class Stopping(View):
    def track(self, name):
        if name == "Test":
            os.kill(os.getpid(), signal.SIGTERM)
        return super().track(name)

try:
    train(read_recipe(sys.argv[1]), sys.argv[2], Stopping())
except Interrupted as stop:
    print(stop)
"""


def test_sigterm_in_the_final_test_says_how_to_go_on(recipe: Callable[..., Path], tmp_path: Path) -> None:
    """In a program that does not watch signals itself, where the system would just end it."""
    path = recipe("all", {"schedule": {"epochs": 1}})
    run = tmp_path / "run"
    command = [sys.executable, "-c", STOPPED_IN_THE_TEST, str(path), str(run)]
    done = subprocess.run(command, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True)
    assert f"Continue with: tophit train --resume {run}" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("trainable", ["all", "head"])
def test_stopped_twenty_times_at_any_moment_it_ends_with_the_same_weights(
    recipe: Callable[..., Path], tmp_path: Path, tophit: Callable, trainable: str
) -> None:
    """SIGKILL and SIGTERM after random times: in imports, in steps, in evaluations, while a checkpoint is written."""
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    generator = random.Random(seed)
    everything = {
        "optimizer": {**RECIPE["optimizer"], "ema": 0.9, "clip": 1.0},
        "schedule": {"epochs": 400, "decay": "multi-step", "milestones": [200, 300], "lr_warmup_steps": 20},
        "loss": "contrastive",
        "memory": {"size": 30},
        "precision": "bf16",
    }
    path = recipe(trainable, everything)
    tophit("train", path, "--run", tmp_path / "whole", **ONE_THREAD)
    stopped, interruptions, rounds = tmp_path / "stopped", 0, 0
    while interruptions < 20:
        arguments = ["--resume", stopped] if (stopped / "checkpoint.pt").exists() else [path, "--run", stopped]
        process = start(*arguments)
        number = generator.choice([signal.SIGKILL, signal.SIGTERM])
        try:
            process.wait(timeout=generator.uniform(1, 9))
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            interruptions += 1
        _, errors = process.communicate(timeout=300)
        assert process.returncode in (0, 130, -number), errors
        if (stopped / "result.json").exists() and interruptions < 20:
            assert_same_run(tmp_path / "whole", stopped)
            rounds += 1
            stopped = tmp_path / f"stopped {rounds}"
    arguments = ["--resume", stopped] if (stopped / "checkpoint.pt").exists() else [path, "--run", stopped]
    tophit("train", *arguments, **ONE_THREAD)
    assert_same_run(tmp_path / "whole", stopped)
