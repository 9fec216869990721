"""The training loop: epochs of steps, evaluations, checkpoints; interrupted anywhere, it continues exactly."""

import hashlib
import math
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from tophit import interrupts
from tophit.data.folders import open_data
from tophit.data.manifest import Manifest
from tophit.data.merge import merge_classes
from tophit.data.splits import hold_out_validation
from tophit.errors import Interrupted, NonFinite, TophitError, UsageError
from tophit.methods import Method, TrainingBatch
from tophit.models.embedder import Embedder, build_embedder, load
from tophit.progress import View
from tophit.recipe import Recipe
from tophit.training.evaluate import evaluate_rows, metrics_of_vectors
from tophit.training.methods import build_method
from tophit.training.optimizer import learning_rate_factor
from tophit.training.proxies import count_centres, save_proxies
from tophit.training.run import Log, Run
from tophit.training.sources import BadImages, FeatureSource, ImageSource


def train(recipe: Recipe, folder: str | Path, view: View | None = None) -> dict[str, Any]:
    """Train by a recipe into a new run folder and return its result: metrics on validation and test classes."""
    run = Run(Path(folder))
    if run.checkpoint_path.exists():
        raise UsageError(f"{folder} holds a run already; continue it with --resume {folder}, or name another folder.")
    return _Training(run, recipe, view or View()).run_to_end()


def resume(folder: str | Path, view: View | None = None) -> dict[str, Any]:
    """Continue a run from its last checkpoint, as if it had never stopped; a finished run returns its result."""
    run = Run.open(folder)
    result = run.result()
    return result if result is not None else _Training(run, run.recipe(), view or View()).run_to_end()


@dataclass
class _Position:
    """Where a run stands; saved in every checkpoint."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch already learned from
    best_value: float = -math.inf
    best_epoch: int = 0
    seconds: float = 0.0
    bad: dict[int, str] = field(default_factory=dict)


class _Training:
    """One run in progress."""

    def __init__(self, run: Run, recipe: Recipe, view: View) -> None:
        self.run, self.recipe, self.view = run, recipe, view
        torch.manual_seed(recipe.seed)
        manifest = open_data(recipe.data.manifest, recipe.data.test_share, recipe.seed)
        self.manifest = hold_out_validation(manifest, recipe.data.validation_share, recipe.seed)
        self.validation = self.manifest.where("validation")
        train_rows = merge_classes(_training_rows(self.manifest), recipe.data.merge_classes)
        self.selects = _has_pairs(self.validation)
        if self.selects:
            view.note(
                f"{len(set(self.validation.labels))} classes ({len(self.validation)} images) are held out of training "
                "to choose the best epoch."
            )
        elif recipe.data.validation_share:
            view.note("Too few training images to hold some out for validation: the last epoch will be kept.")
        self.embedder = make_embedder(recipe)
        self.embedder.trained = recipe.embedder.trainable
        self.bad = BadImages(recipe.data.max_bad_images, view.note)
        self.source = self._make_source(train_rows)
        self.method: Method = build_method(recipe, self.embedder, self.source)
        self.total_steps = recipe.schedule.epochs * len(self.source.sampler)
        self.base_lrs = [group["lr"] for group in self._groups()]
        self.position = _Position()
        log_bytes = self._restore()
        run.begin(recipe)
        self.log = Log(run, log_bytes, self.position.step)
        self.last_save = self.started = time.monotonic()
        self.seconds_before = self.position.seconds

    def _make_source(self, train: Manifest) -> FeatureSource | ImageSource:
        if self.recipe.embedder.trainable == "head":
            progress = self.view.track("Features")
            return FeatureSource(self.recipe, self.embedder, train, self.validation, self.bad, progress)
        return ImageSource(self.recipe, self.embedder, train, self.validation, self.bad)

    def run_to_end(self) -> dict[str, Any]:
        """Learn through the remaining epochs, then measure the best embedder on the test classes."""
        try:
            interrupts.check()
            with _stop_signals() as stop, self.view.steps(self.total_steps, self.position.step):
                while self.position.epoch < self.recipe.schedule.epochs:
                    self._learn_epoch(stop)
            result = self._result()
            self.run.write_result(result)
            return result
        except KeyboardInterrupt:
            if not self.run.checkpoint_path.is_file():
                raise
            raise self._interrupted() from None
        finally:
            self.log.close()

    def _learn_epoch(self, stop: "_Stop") -> None:
        position = self.position
        self._set_modes()
        self.method.begin_epoch(position.epoch)
        for batch in self.source.batches(position.epoch, position.batch):
            if len(batch.labels):
                self._learn_step(batch)
            position.step += 1
            position.batch += 1
            if stop.asked:
                self._save()
                raise self._interrupted()
            if time.monotonic() - self.last_save >= 60 * self.recipe.checkpoint.minutes:
                self._save()
        position.epoch, position.batch = position.epoch + 1, 0
        last = position.epoch == self.recipe.schedule.epochs
        if last or position.epoch % self.recipe.evaluation.every == 0:
            self._evaluate()
            self._save()

    def _interrupted(self) -> Interrupted:
        command = f"tophit train --resume {shlex.quote(str(self.run.folder))}"
        return Interrupted(f"Stopped at step {self.position.step}. Continue with: {command}")

    def _groups(self) -> list[dict[str, Any]]:
        """Return the parameter groups of all optimizers."""
        return [group for optimizer in self.method.optimizers for group in optimizer.param_groups]

    def _learn_step(self, batch: TrainingBatch) -> None:
        factor = learning_rate_factor(self.recipe.schedule.decay, self.position.step / self.total_steps)
        for group, lr in zip(self._groups(), self.base_lrs, strict=True):
            group["lr"] = lr * factor
        step = self.position.step + 1
        try:
            values = self.method.step(batch)
        except NonFinite as error:
            raise TophitError(
                f"Step {step} was not taken. {error} The last good checkpoint is in {self.run.folder}."
            ) from error
        loss = float(values["loss"])
        if not math.isfinite(loss):
            raise TophitError(
                f"The loss became {loss} at step {step}; lower optimizer.head.lr or "
                f"optimizer.backbone.lr. The last good checkpoint is in {self.run.folder}."
            )
        if "warning" in values:
            self.view.note(f"Step {step}: {values['warning']}")
        self.log.write(step, {"epoch": self.position.epoch + 1, **values, "lr_factor": factor})
        self.view.step(loss)

    def _set_modes(self) -> None:
        """Freeze what must not learn in this epoch: the backbone in warm-up or under a head, BatchNorm's statistics."""
        recipe = self.recipe
        learns = recipe.embedder.trainable == "all" and self.position.epoch >= recipe.schedule.warmup_epochs
        self.embedder.backbone.requires_grad_(learns)
        self.embedder.train()
        if not learns or recipe.embedder.freeze_batch_norm:
            for module in self.embedder.backbone.modules():
                if isinstance(module, nn.modules.batchnorm._BatchNorm):
                    module.eval()

    def _evaluate(self) -> None:
        """Measure on the validation classes and keep the embedder if it is the best so far (or there are none)."""
        position = self.position
        if not self.selects:
            position.best_epoch = position.epoch
            self._keep_best()
            return
        name = self.recipe.evaluation.metric
        embedded = self.source.validation_vectors()
        for row, reason in embedded.bad.items():
            self.bad.add(self.validation.number(row), reason)
        metrics = metrics_of_vectors(embedded.vectors, [self.validation.rows[i] for i in embedded.rows], metrics=[name])
        self.log.write(position.step, {"epoch": position.epoch, **{f"validation/{k}": v for k, v in metrics.items()}})
        self.view.evaluated(position.epoch, name, metrics[name], metrics["recall@1"])
        if metrics[name] >= position.best_value:  # of equals the later one, which has learned more
            position.best_value, position.best_epoch = metrics[name], position.epoch
            self._keep_best()

    def _keep_best(self) -> None:
        self.embedder.save(self.run.best)
        save_proxies(self.method.loss, self.source.class_names, self.run.best)

    def _result(self) -> dict[str, Any]:
        position = self.position
        result: dict[str, Any] = {
            "best_epoch": position.best_epoch,
            "validation": {self.recipe.evaluation.metric: position.best_value} if self.selects else {},
            "steps": position.step,
            "seconds": round(self._seconds(), 1),
        }
        result |= count_centres(self.run.folder)
        test = self.manifest.where("test")
        result |= self._test(load(self.run.best).to(self.embedder.device), test, "test", "intervals")
        if self.recipe.embedder.weights != "random":
            result |= self._test(make_embedder(self.recipe, head=False), test, "before", "before_intervals")
        self.run.write_bad_images(self.bad.reasons)
        return result

    def _test(self, embedder: Embedder, test: Manifest, metrics_name: str, intervals_name: str) -> dict[str, Any]:
        """Measure an embedder on the test classes; nothing if no class has two images."""
        if not _has_pairs(test):
            return {metrics_name: {}, intervals_name: {}}
        metrics = evaluate_rows(
            embedder,
            test.rows,
            confidence=0.95,
            # Once the training is done, a bad test image must not cost its result.
            on_bad=lambda row, reason: self.bad.add(test.number(row), reason, enforce=False),
            progress=self.view.track("Test"),
        )
        return {metrics_name: dict(metrics), intervals_name: metrics.intervals}

    def _seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def _save(self) -> None:
        """Write everything that is needed to continue exactly."""
        self.position.seconds = self._seconds()
        self.position.bad = self.bad.reasons
        self.run.save_checkpoint(
            {
                "data": _data_digest(self.manifest),
                "position": vars(self.position),
                "embedder": _learned_state(self.embedder),
                "method": self.method.state_dict(),
                "random": torch.get_rng_state(),
                "log_bytes": self.log.flush(),
            }
        )
        self.last_save = time.monotonic()

    def _restore(self) -> int:
        """Load the checkpoint, if there is one, and return how much of the log belongs to it."""
        state = self.run.load_checkpoint()
        if state is None:
            return 0
        if state["data"] != _data_digest(self.manifest):
            raise TophitError(
                f"The images or labels of {self.manifest.source} are not those that the run in {self.run.folder} began "
                "with, so it can't be continued; put them back, or start a new run."
            )
        self.position = _Position(**state["position"])
        self.embedder.load_state_dict(state["embedder"], strict=False)
        self.method.load_state_dict(state["method"])
        torch.set_rng_state(state["random"])
        self.bad.reasons = dict(self.position.bad)
        return state["log_bytes"]


def make_embedder(recipe: Recipe, head: bool = True) -> Embedder:
    """Build the recipe's embedder as it is before training, with an untrained head or with none."""
    fields = recipe.embedder
    dim = fields.dim if head else None
    embedder = build_embedder(
        fields.backbone, fields.weights, fields.pooling, fields.p, dim, fields.size, fields.crop, fields.squash
    )
    return embedder.to(choose_device(recipe.device))


def choose_device(name: str) -> torch.device:
    """Return the named device; ``auto`` takes a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"The device '{name}' is not to be had here: {str(error).splitlines()[0]}") from error


def _learned_state(embedder: Embedder) -> dict[str, torch.Tensor]:
    """Return the weights that training changes: a frozen backbone is built again from the recipe."""
    state = embedder.state_dict()
    return {k: v for k, v in state.items() if embedder.trained == "all" or not k.startswith("backbone.")}


def _has_pairs(manifest: Manifest) -> bool:
    """Say whether there is anything to find: a class with two images."""
    return len(manifest) > len(set(manifest.labels))


def _data_digest(manifest: Manifest) -> str:
    """Return a digest of what a run learns from: the order of the rows, their labels, splits and boxes."""
    rows = [(row.path.name, row.label, row.split, row.box) for row in manifest]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def _training_rows(manifest: Manifest) -> Manifest:
    train = manifest.where("train")
    if len(set(train.labels)) < 2:
        raise TophitError(
            f"{manifest.source}: training needs images of at least two classes in the split 'train', "
            f"there are {len(set(train.labels))} (rows without a split are for testing)."
        )
    return train


class _Stop:
    asked = False


@contextmanager
def _stop_signals() -> Iterator[_Stop]:
    """Turn the first Ctrl-C or SIGTERM into a stop after the current step; a second one stops at once."""
    stop = _Stop()

    def ask(signum: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever runs it handles signals
        before = {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
