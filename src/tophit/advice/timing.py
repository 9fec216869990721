"""How long a run would take on this machine: a few steps of each kind are measured, and counted as the run does them.

Images are read, features computed, and steps taken for real, on a few images of the data.
"""

import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import torch

from tophit.data.dataset import ImageDataset, collate, normalised
from tophit.data.feature_files import feature_file_of
from tophit.data.manifest import ImageRow
from tophit.embedding.features import known_share
from tophit.images.views import Augmentation
from tophit.methods import Stepper
from tophit.models.cut import run_tail
from tophit.models.embedder import Embedder
from tophit.models.runtimes import build_runtime, choose_runtime, features_of
from tophit.progress import resident_bytes
from tophit.recipe import Recipe
from tophit.training.building import build_method, make_embedder, make_sampler, with_given_features
from tophit.training.devices import start_stepper
from tophit.training.evaluate import metrics_of_vectors
from tophit.training.head_start import MOST_IMAGES, principal_head
from tophit.training.keeping import SHARES, may_keep_untrained, splits_wanted
from tophit.training.kinds_taken import sees_paths
from tophit.training.learning import Learning, prepare_learning
from tophit.training.run_rows import RunRows, has_pairs, rows_of
from tophit.training.sources import CachedSource, FeatureSource, MakeSampler
from tophit.training.wanted import wanted_metrics

T = TypeVar("T")
clock: Callable[[], float] = time.perf_counter
"""What measures; on a busy machine the benchmark of plans replaces it by the processor's time."""
_SECONDS = 1.0  # measured of each kind of work, if that is more than one repetition
_IMAGES, _MORE_IMAGES = 16, 64  # in a measured step of the network; more where the few are quick, as in a real batch
_QUICK = 0.5  # seconds
_FEATURE_IMAGES = 128
_MOST_RANKED = 2000  # vectors in a measured evaluation; beyond, its time grows with the square of the number
_POOL = 4096  # random features that stand for the training images'
_BUILT = 5  # embedders that a run builds or loads: its own, before, start, trained and best


@dataclass(frozen=True)
class Estimate:
    """The seconds of a run by part, those of one epoch, and the most main memory in bytes."""

    parts: dict[str, float]
    epoch: float
    memory: int

    @property
    def seconds(self) -> float:
        """The seconds of the whole run."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class _Network:
    """Seconds per image: reading it, passing forward, passing forward and backward where it learns; and its memory."""

    read: float
    forward: float
    learn: float
    trunk: float  # the share of the forward pass before the cut, computed once
    weights: float  # seconds of an update of the backbone's weights
    bytes_each: float  # of what a forward pass keeps for the backward pass


def estimate(recipe: Recipe) -> Estimate:
    """Estimate a run of a recipe by measuring a few seconds of its work on its data."""
    recipe = with_given_features(recipe)
    with torch.random.fork_rng(devices=[]):
        return _estimate(recipe, rows_of(recipe))


def _estimate(recipe: Recipe, rows: RunRows) -> Estimate:
    stepper = start_stepper(recipe)
    embedder, building = _timed(lambda: make_embedder(recipe, device=stepper.device))
    stepper.shares(embedder.parameters(), embedder.dim)
    counts = {"train": len(rows.train), "validation": len(rows.validation), "test": len(rows.test)}
    source = _RandomFeatures(embedder, rows, stepper, partial(make_sampler, recipe), sees_paths(recipe))
    step = _step_seconds(recipe, embedder, source, stepper)
    steps, epochs = len(source.sampler), recipe.schedule.epochs
    selects = has_pairs(rows.validation)
    keeps = may_keep_untrained(recipe, selects)
    evaluations = -(-epochs // recipe.evaluation.every)
    ranking = _ranking_seconds(recipe, rows.validation.rows, embedder.dim) if selects else 0.0
    tests = [embedder.dim] + [embedder.channels] * (recipe.embedder.weights != "random" and recipe.evaluation.before)
    tested = recipe.evaluation.test and has_pairs(rows.test)
    testing = sum(_ranking_seconds(recipe, rows.test.rows, dim, True) for dim in tests) if tested else 0.0
    feature, share = _feature_seconds(embedder, rows)
    parts = {"start": _BUILT * building + _start_seconds(recipe, embedder, counts["train"])}
    memory = resident_bytes()
    trained = recipe.embedder.trainable
    if trained == "head":
        splits = splits_wanted(recipe, rows) if keeps else 1
        parts["start"] *= splits
        parts["features"] = feature * share * sum(counts.values())
        epoch = steps * step
        parts["training"] = splits * epochs * epoch
        parts["validation"] = splits * (evaluations * ranking + (len(SHARES) + 4) * ranking * keeps)
        parts["test"] = testing
        return Estimate(parts, epoch, memory + 4 * embedder.channels * (counts["train"] + counts["validation"]))
    network = _network_seconds(recipe, embedder, rows)
    batch = counts["train"] / steps
    views = max(1, recipe.augment.views) if trained == "last" else 0
    reading = 0.0 if views else network.read / max(1, recipe.data.workers)
    again = network.forward if recipe.batches.chunk else 0.0  # chunks pass twice
    warm = steps * (batch * (reading + network.forward) + step)
    epoch = steps * (batch * (reading + network.learn + again) + step + network.weights)
    warmups = min(epochs, recipe.schedule.warmup_epochs)
    whole = network.forward / max(1 - network.trunk, 1e-6)  # a forward pass of all stages
    plain = 0.0 if views else network.read
    parts["features"] = feature * share * counts["validation"] * keeps
    if recipe.embedder.head_start != "random":
        parts["features"] += feature * share * min(MOST_IMAGES, counts["train"])
    if views:
        parts["activations"] = (counts["train"] * views + counts["validation"]) * (
            feature * network.trunk + network.read
        )
    parts["training"] = warmups * warm + (epochs - warmups) * epoch
    parts["validation"] = evaluations * (counts["validation"] * (plain + network.forward) + ranking) * selects
    parts["choice"] = (len(SHARES) + 1) * (counts["validation"] * (network.read + whole) + ranking) * keeps
    parts["test"] = testing + len(tests) * tested * feature * counts["test"]
    if tested and counts["test"] >= 500:
        parts["test"] += _export_seconds(embedder, counts["test"])
    most = min(batch, recipe.batches.chunk or batch)
    return Estimate(parts, epoch, int(memory + most * network.bytes_each))


class _RandomFeatures(FeatureSource):
    """Random features instead of the images' own: steps take as long."""

    def __init__(
        self, embedder: Embedder, rows: RunRows, stepper: Stepper, make_sampler: MakeSampler, takes_paths: bool
    ) -> None:
        self.features = torch.randn(min(len(rows.train), _POOL), embedder.channels, device=embedder.device)
        CachedSource.__init__(
            self, embedder, rows.train, list(range(len(rows.train))), stepper, make_sampler, takes_paths
        )

    def inputs(self, rows: torch.Tensor, epoch: int) -> torch.Tensor:
        """Return features (N, channels)."""
        return self.features[rows % len(self.features)]


def _step_seconds(recipe: Recipe, embedder: Embedder, source: FeatureSource, stepper: Stepper) -> float:
    """Return the seconds of a step without the backbone: reading features, loss, miner, head and proxies."""
    only_head = recipe.embedder.model_copy(update={"trainable": "head"})
    if embedder.architecture["dim"] is None:  # nothing but the loss learns; a head would be much like it
        return 0.01
    method = build_method(recipe.model_copy(update={"embedder": only_head}), embedder, source, stepper)
    embedder.backbone.requires_grad_(False)
    method.begin_epoch(0)
    batches = iter(source.batches(0, 0))
    first = next(batches)
    _, once = _timed(lambda: method.step(first))
    began, taken = clock(), 0
    for batch in batches:
        method.step(batch)
        taken += 1
        if clock() - began >= _SECONDS:
            break
    embedder.backbone.requires_grad_(True)
    return (clock() - began) / taken if taken else once


def _ranking_seconds(
    recipe: Recipe, rows: list[ImageRow] | tuple[ImageRow, ...], dim: int, test: bool = False
) -> float:
    """Return the seconds of ranking all rows by vectors of a length."""
    few = rows[:_MOST_RANKED]
    if len({row.label for row in few}) == len(few):
        return 0.0
    vectors = np.random.default_rng(0).normal(size=(len(few), dim)).astype(np.float32)
    measure = partial(metrics_of_vectors, vectors, few, 0.95 if test else None, wanted_metrics(recipe))
    measure()
    return _timed(measure)[1] * (len(rows) / len(few)) ** 2


def _feature_seconds(embedder: Embedder, rows: RunRows) -> tuple[float, float]:
    """Return the seconds per image of computing features, and the share of images whose features are not cached."""
    if feature_file_of(rows.train.rows) is not None:
        return 0.0, 0.0
    total = len(rows.train)
    sample = [rows.train.rows[i] for i in np.linspace(0, total - 1, min(total, _FEATURE_IMAGES)).astype(int)]
    runtime = choose_runtime(embedder, total)

    def compute() -> None:
        for _ in features_of(runtime, embedder, sample):
            pass

    if len(sample) >= 64:  # the first batch warms up
        for _ in features_of(runtime, embedder, sample[:8]):
            pass
    seconds = _timed(compute)[1] / len(sample)
    return seconds, 1 - known_share(embedder, sample, total)


def _start_seconds(recipe: Recipe, embedder: Embedder, images: int) -> float:
    if recipe.embedder.head_start == "random" or recipe.embedder.dim is None:
        return 0.0
    channels, dim = embedder.channels, recipe.embedder.dim
    features = np.random.default_rng(0).normal(size=(min(images, MOST_IMAGES), channels)).astype(np.float32)
    labels = [str(i // 2) for i in range(len(features))] if recipe.embedder.head_start == "whitened" else None
    return _timed(lambda: principal_head(features, dim, labels))[1]


def _network_seconds(recipe: Recipe, embedder: Embedder, rows: RunRows) -> _Network:
    """Measure reading and passing a few training images; more if that is quick: several cores share a large batch."""
    prepare_learning(recipe, embedder)
    learning = Learning(recipe, embedder)
    learning.begin_epoch(recipe.schedule.epochs + len(learning.stages) * (recipe.schedule.unfreeze_epochs or 1))
    found = _passes_of(_IMAGES, recipe, embedder, rows, learning.frozen)
    if _IMAGES * found.learn > _QUICK:
        return found
    return _passes_of(_MORE_IMAGES, recipe, embedder, rows, learning.frozen)


def _passes_of(most: int, recipe: Recipe, embedder: Embedder, rows: RunRows, frozen: int) -> _Network:
    """Measure reading and passing up to ``most`` training images."""
    dataset = ImageDataset(
        rows.train.rows, embedder.preprocessing, Augmentation(recipe.seed, **recipe.augment.of_views())
    )
    count = min(most, len(rows.train), recipe.batches.chunk or most)
    chosen = np.linspace(0, len(rows.train) - 1, count).astype(int).tolist()
    _timed(lambda: dataset[(0, chosen[0])])
    batch, reading = _timed(lambda: normalised(collate([dataset[(0, i)] for i in chosen]), embedder.preprocessing))
    images = batch.images.to(embedder.device)
    with torch.no_grad():
        inputs = images
        began = clock()
        for stage in embedder.backbone.stages()[:frozen]:
            inputs = stage.run(inputs)
        before_cut = clock() - began if frozen else 0.0

    def embed() -> torch.Tensor:
        return embedder.embed_features(run_tail(embedder, frozen, inputs)) if frozen else embedder(images)

    with torch.no_grad():
        embed()
        _, forward = _timed(embed)
    embed().sum().backward()
    held = resident_bytes()

    def learn() -> int:
        vectors = embed()
        after = resident_bytes()
        (vectors * torch.randn_like(vectors)).sum().backward()
        return after - held

    (kept, seconds) = _timed(learn)
    weights = [each for each in embedder.backbone.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=0.0, fused=True)
    optimizer.step()
    _, updating = _timed(optimizer.step)
    whole = before_cut + forward
    return _Network(
        reading / count, forward / count, seconds / count, before_cut / whole, updating, max(0, kept) / count
    )


def _export_seconds(embedder: Embedder, images: int) -> float:
    """Return the seconds of preparing the fastest runtime for weights that it has not seen."""
    runtime = choose_runtime(embedder, images)
    other = deepcopy(embedder)
    with torch.no_grad():
        next(iter(other.backbone.parameters())).mul_(1 + 1e-3 * torch.rand(1).item())
    return _timed(lambda: build_runtime(runtime.name, other))[1]


def _timed(function: Callable[[], T]) -> tuple[T, float]:
    began = clock()
    result = function()
    return result, clock() - began
