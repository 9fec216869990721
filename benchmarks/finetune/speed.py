"""Seconds of an epoch from a cache against one from images; memory; building the cache against passes of a runtime.

Each measurement runs in a process of its own, since a peak of memory never falls; they take turns. Seconds are CPU
time, over all threads, so that other programs matter little; an epoch is extrapolated from some steps.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from tophit.data.manifest import Manifest
from tophit.embedding.activations import Wanted, cached_activations
from tophit.images.views import Augmentation
from tophit.methods import Stepper
from tophit.models.cut import Trunk
from tophit.models.runtimes import BATCH, choose_runtime, fastest_runtime, features_of
from tophit.progress import View
from tophit.recipe import Recipe, make_recipe
from tophit.training.activation_source import ActivationSource
from tophit.training.building import build_method, make_embedder, make_sampler
from tophit.training.learning import Learning, frozen_count
from tophit.training.run_rows import data_of
from tophit.training.sources import BadImages, ImageSource

_LAST_STEPS = 10  # measured for each step of 'all'
_MANY = 10_000  # images: enough that the fastest runtime is chosen


@dataclass(frozen=True)
class Case:
    """What is measured: ``what`` is all, last, build or pass."""

    backbone: str
    size: int
    data: str
    weights: str = "random"
    last: int | None = None
    views: int = 4
    batch: int = 64
    steps: int = 3
    images: int = 256
    what: str = ""


def recipe_of(case: Case) -> Recipe:
    """Return a recipe with a case's network, from the first step on as after the warm-up."""
    return make_recipe(
        {
            "data": {"manifest": case.data, "validation_share": 0},
            "embedder": {
                "backbone": case.backbone,
                "weights": case.weights,
                "size": case.size,
                "dim": 512,
                "trainable": "all" if case.what == "all" else "last",
                "last": case.last,
            },
            "batches": {"sampler": "random", "size": case.batch},
            "augment": {"views": case.views},
            "schedule": {"warmup_epochs": 0},
        }
    )


def measure(case: Case) -> dict[str, float]:
    """Return CPU seconds of an epoch, of building a cache, or of a pass of the runtime; and the peak of memory."""
    recipe = recipe_of(case)
    rows = data_of(recipe).where("train")
    found = _epoch(case, recipe, rows) if case.what in ("all", "last") else _pass_or_build(case, recipe, rows)
    return found | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _epoch(case: Case, recipe: Recipe, rows: Manifest) -> dict[str, float]:
    """Extrapolate an epoch of all rows from some steps, reading included.

    Steps of 'last' read a cache of as many images as they learn from, which was built before.
    """
    steps = case.steps * (1 if case.what == "all" else _LAST_STEPS)
    used = Manifest(rows.rows[: case.batch * (steps + 1)], rows.source)
    embedder, bad, stepper = make_embedder(recipe), BadImages(0, print), Stepper()
    deal = partial(make_sampler, recipe)
    none = Manifest((), rows.source)
    if case.what == "all":
        source = ImageSource(recipe, embedder, used, none, bad, stepper, deal)
    else:
        source = ActivationSource(recipe, embedder, used, none, bad, View(), stepper, deal)
    method = build_method(recipe, embedder, source, stepper)
    Learning(recipe, embedder).begin_epoch(0)
    batches = source.batches(0, 0)
    method.step(next(batches))
    start, wall, done = time.process_time(), time.perf_counter(), 0
    for batch in batches:
        method.step(batch)
        done += 1
        if done == steps:
            break
    batches_an_epoch = len(rows.rows) / case.batch
    frozen = frozen_count(recipe, embedder)
    return {
        "seconds": (time.process_time() - start) / done * batches_an_epoch,
        "wall_seconds": (time.perf_counter() - wall) / done * batches_an_epoch,
        "learn": len(embedder.backbone.stages()) - frozen,
    }


def _pass_or_build(case: Case, recipe: Recipe, rows: Manifest) -> dict[str, float]:
    """Compute the features of some images by the fastest runtime, or their activations in all views into a new cache.

    The runtimes of both are chosen, exported and loaded before.
    """
    embedder = make_embedder(recipe).eval()
    some = rows.rows[: case.images]
    if case.what == "pass":
        runtime = choose_runtime(embedder, _MANY)
        next(features_of(runtime, embedder, some[:8]))
        start, wall = time.process_time(), time.perf_counter()
        for _ in features_of(runtime, embedder, some):
            pass
    else:
        build = partial(cached_activations, embedder, frozen_count(recipe, embedder))
        views = Augmentation(0, **recipe.augment.of_views())
        trunk = Trunk(embedder, frozen_count(recipe, embedder))
        os.environ["TOPHIT_RUNTIME"] = fastest_runtime(trunk, BATCH)  # as for all images, not for these few
        build([Wanted(some[:8])], views)
        start, wall = time.process_time(), time.perf_counter()
        build([Wanted(some, case.views)], views)
    return {"seconds": time.process_time() - start, "wall_seconds": time.perf_counter() - wall}


def print_speed(cases: Sequence[Case], rounds: int) -> None:
    """Print one line per network and size, as soon as it is measured."""
    print("| network | pixels | stages learned | epoch of all | of last | all / last | peak MB | build / passes |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for case in cases:
        found = _turns(case, rounds)
        whole, last = found["all"], found["last"]
        ratio = found["build"]["seconds"] / (case.views * found["pass"]["seconds"])
        print(
            f"| {case.backbone} | {case.size} | {last['learn']:.0f} | {whole['seconds']:,.0f} s | "
            f"{last['seconds']:,.1f} s | {whole['seconds'] / last['seconds']:.1f} | "
            f"{whole['peak_mb']:,.0f} and {last['peak_mb']:,.0f} | {ratio:.2f} |",
            flush=True,
        )


def _turns(case: Case, rounds: int) -> dict[str, dict[str, float]]:
    """Return the medians of every measurement over rounds in which all take turns."""
    found: dict[str, list[dict[str, float]]] = {what: [] for what in ("all", "last", "pass", "build")}
    with tempfile.TemporaryDirectory() as remembered:  # exported graphs and choices of runtimes stay between rounds
        for _ in range(rounds):
            for what, results in found.items():
                with _new_cache(remembered) as cache:
                    results.append(_in_process(replace(case, what=what), cache))
    return {
        what: {name: statistics.median(each[name] for each in results) for name in results[0]}
        for what, results in found.items()
    }


@contextmanager
def _new_cache(remembered: str) -> Iterator[str]:
    """Yield a cache folder without activations, but with what earlier processes exported and measured."""
    with tempfile.TemporaryDirectory() as name:
        for part in ("onnx", "engines"):
            os.makedirs(f"{remembered}/{part}", exist_ok=True)
            os.symlink(f"{remembered}/{part}", f"{name}/{part}")
        yield name


def _in_process(case: Case, cache: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.finetune", "measure", json.dumps(asdict(case))]
    environment = {**os.environ, "TOPHIT_CACHE": cache}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
