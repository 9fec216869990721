"""The fastest runtime on this machine, measured once per backbone, input and batch size, and remembered."""

import hashlib
import json
import os
import platform
import statistics
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tophit.files import cache_folder, create_text
from tophit.models.runtimes import build_runtime, runtimes_at_hand

if TYPE_CHECKING:
    from tophit.models.embedder import Embedder

_MOST_IMAGES = 16  # per batch in the measurement
_ROUNDS = 3
_MOST_SECONDS = 6.0  # per runtime: a slow one gets fewer rounds
_MARGIN = 0.9  # a later runtime must take less than this share of an earlier one's time, or noise would decide


def fastest_runtime(embedder: "Embedder", batch: int, precision: str = "fp32") -> str:
    """Return the name of the fastest available runtime: the remembered one, or else by measuring for some seconds."""
    names = runtimes_at_hand(precision)
    if len(names) == 1:
        return names[0]
    key = _key(embedder, batch, precision, names)
    path = cache_folder() / "engines" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]}.json"
    if not path.is_file():
        seconds = measure_runtimes(embedder, batch, precision, names)
        choice = {"engine": choose(seconds), "seconds_an_image": seconds, "measured_for": key}
        path.parent.mkdir(parents=True, exist_ok=True)
        create_text(path, json.dumps(choice, indent=2) + "\n")  # if another process was first, keep its choice
    return json.loads(path.read_text(encoding="utf-8"))["engine"]


def choose(seconds: dict[str, float]) -> str:
    """Return the first runtime that no later one clearly beats."""
    best, *others = seconds
    for name in others:
        if seconds[name] < _MARGIN * seconds[best]:
            best = name
    return best


def measure_runtimes(embedder: "Embedder", batch: int, precision: str, names: list[str]) -> dict[str, float]:
    """Return each runtime's median seconds per image, not counting the first batch."""
    count, size = min(batch, _MOST_IMAGES), embedder.preprocessing.size
    images = np.random.default_rng(0).normal(size=(count, 3, size, size)).astype(np.float32)
    seconds: dict[str, float] = {}
    for name in names:
        runtime = build_runtime(name, embedder, precision)
        runtime.compute(images[:1])
        times: list[float] = []
        while len(times) < _ROUNDS and sum(times) < _MOST_SECONDS:
            start = time.perf_counter()
            runtime.compute(images)
            times.append(time.perf_counter() - start)
        seconds[name] = statistics.median(times) / count
    return seconds


def _key(embedder: "Embedder", batch: int, precision: str, names: list[str]) -> dict[str, Any]:
    architecture = {k: v for k, v in embedder.architecture.items() if k in ("backbone", "pooling", "config")}
    return {
        "machine": [platform.machine(), _processor(), os.cpu_count(), torch.get_num_threads()],
        "model": architecture,
        "size": embedder.preprocessing.size,
        "batch": batch,
        "precision": precision,
        "engines": {name: _version(name) for name in names},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def _version(runtime: str) -> str:
    try:
        return version("torch" if runtime.startswith("torch") else runtime)
    except PackageNotFoundError:
        return ""
